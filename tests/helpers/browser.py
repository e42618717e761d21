"""A browser without a window, to look at pages as people see them."""

import html
import re
import shutil
import subprocess

import pytest

QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
QUIET += ["--disable-component-update", "--disable-sync", "--hide-scrollbars"]
PHONE = 375  # pixels

# What a reader on a phone would complain of: the page, a text that is cut off, or a label that is too small.
_MEASURE = """
<iframe style="width:{width}px;height:4000px;border:0" srcdoc="{page}"></iframe><script>
onload=()=>{{const d=document.querySelector('iframe').contentDocument,r=d.documentElement;
const size=t=>parseFloat(t.ownerDocument.defaultView.getComputedStyle(t).fontSize);
const labels=[...d.querySelectorAll('svg text')].map(t=>size(t)*
t.ownerSVGElement.getBoundingClientRect().width/t.ownerSVGElement.viewBox.baseVal.width);
const out=[...d.querySelectorAll('svg text')].filter(t=>{{const b=t.getBoundingClientRect(),
s=t.ownerSVGElement.getBoundingClientRect();return b.left<s.left-1||b.right>s.right+1}}).map(t=>t.textContent);
const wide=[...d.querySelectorAll('table')].filter(t=>{{const b=t.parentElement;
return t.scrollWidth>b.clientWidth+1&&getComputedStyle(b).overflowX!='auto'}}).length;
document.title='measured '+r.scrollWidth+' '+Math.min(...labels)+' '+wide+' '+out.length}}
</script>
"""


def find_browser():
    """The path of a browser; skips the test if there is none."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("missing: a browser (chromium, chromium-browser or google-chrome on PATH); Debian package chromium")
    return browser


def measure_on_a_phone(page, work):
    """Width of the page, size of the smallest label of a figure, tables that are cut off, labels that are."""
    path = work / "phone.html"
    path.write_text(f"<!doctype html>{_MEASURE.format(width=PHONE, page=html.escape(page))}", encoding="utf-8")
    command = [find_browser(), *QUIET, f"--user-data-dir={work}/profile", "--dump-dom", f"file://{path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    width, label, wide, cut = re.search(r"<title>measured (\S+) (\S+) (\S+) (\S+)</title>", done).groups()
    return int(width), float(label), int(wide), int(cut)
