"""Programs: flags, reading, writing, reports. The only room with argparse."""
