"""Print the command that a README gives under a heading: readme.py README.md "Run the tests"."""

import re
import sys
from pathlib import Path

text, heading = Path(sys.argv[1]).read_text("utf-8"), f"## {sys.argv[2]}"
found = re.search(rf"^{heading}\n.*?^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
if found is None:
    sys.exit(f'There is no sh block under "{heading}".')
print(found[1].strip())
