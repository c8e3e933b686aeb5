"""`python -m cynode_workflow`."""

import sys

from cynode_workflow.cli import main

if __name__ == "__main__":
    sys.exit(main())
