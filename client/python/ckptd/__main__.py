"""python -m ckptd doctor: says what is missing on this machine."""

import argparse
import sys

from . import __version__, doctor


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ckptd")
    parser.add_argument("--version", action="version", version=f"ckptd {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("doctor", help="Check this machine, and the daemon if there is one")
    check.add_argument("--socket", help="Socket of the daemon (default: $CKPTD_SOCKET)")
    check.add_argument("--json", action="store_true", help="Print one JSON document")
    options = parser.parse_args()
    return doctor.run(options.socket, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
