"""The shop's project. Its files (databases, the embedded server's) are in one folder."""

import os
from pathlib import Path

VAR = Path(os.environ.get("SHOP_VAR") or Path(__file__).parent.parent / "var").resolve()
"""``testproject/var``, or where SHOP_VAR says."""

DEMO_DATABASE = "demo.sqlite3"
"""The file that ``manage.py demo`` recreates every time. The site's own is another one."""
