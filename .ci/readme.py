"""Print the command that a README gives under "## Run the tests"."""

import re
import sys
from pathlib import Path

text = Path(sys.argv[1]).read_text("utf-8")
found = re.search(r"^## Run the tests\n.*?^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
if found is None:
    sys.exit('There is no sh block under "## Run the tests".')
print(found[1].strip())
