"""What the launcher of the Flex Template runs: `dpngram extract` with the template's parameters."""

import sys

from dpngram.pipelines.template import launch

if __name__ == "__main__":
    sys.exit(launch(sys.argv[1:]))
