"""python -m ckptd: doctor says what is missing on this machine, import-dcp and export-dcp convert
folders of torch.distributed.checkpoint."""

import argparse
import json
import sys
from typing import Any

from . import __version__, doctor, errors

# Exit codes of ckptctl.
_CODES = ((errors.InvalidArgument, 2), (errors.NotFound, 3), (errors.Corrupt, 4))


def main() -> int:
    options = _parser().parse_args()
    if options.command == "doctor":
        return doctor.run(options.socket, as_json=options.json)
    try:
        return _convert(options)
    except errors.Error as error:
        print(f"ckptd: {error}", file=sys.stderr)
        return next((code for kind, code in _CODES if isinstance(error, kind)), 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ckptd")
    parser.add_argument("--version", action="version", version=f"ckptd {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("doctor", help="Check this machine, and the daemon if there is one")
    into = commands.add_parser("import-dcp", help="Make a new run of a DCP folder")
    into.add_argument("folder", metavar="FOLDER")
    into.add_argument("run", metavar="RUN")
    into.add_argument("--step", type=int, metavar="N",
                      help="Step of the commit (default: the number at the end of FOLDER)")
    into.add_argument("--tie", action="append", default=[], metavar="NAME=OTHER",
                      help="Store tensor NAME as tied to OTHER, which has equal bytes")
    out = commands.add_parser("export-dcp", help="Write a view of a run as a DCP folder")
    out.add_argument("run", metavar="RUN[@STEP]",
                     help="A step or a tag, or RUN~LINEAGE@STEP (default: the latest step)")
    out.add_argument("folder", metavar="FOLDER")
    for command in (into, out):
        command.add_argument("--allow-pickle", action="append", default=[], metavar="NAME",
                             help="Trust the pickle of value NAME, which can run code")
    for command in (check, into, out):
        command.add_argument("--socket", help="Socket of the daemon (default: $CKPTD_SOCKET)")
        command.add_argument("--json", action="store_true", help="Print one JSON document")
    return parser


def _convert(options: argparse.Namespace) -> int:
    try:
        from . import convert
    except ImportError as error:
        raise errors.FailedPrecondition(
            f"{options.command}: {error}; install PyTorch 2.9 or newer") from None
    done: Any
    if options.command == "import-dcp":
        ties = {}
        for tie in options.tie:
            name, equals, other = tie.partition("=")
            if not equals:
                raise errors.InvalidArgument(f"--tie {tie}: give NAME=OTHER")
            ties[name] = other
        done = convert.import_dcp(options.folder, options.run, options.step, ties=ties,
                                  socket=options.socket, allow_pickle=options.allow_pickle)
        said = (f"imported {options.folder} as {done.run}@{done.view.step}: {done.tensors} "
                f"tensors, {done.experts} experts, {done.values} values, {done.bytes} bytes")
        said += f"\nalarm: {done.alarms}" if done.alarms else ""
    else:
        done = convert.export_dcp(options.run, options.folder, socket=options.socket,
                                  allow_pickle=options.allow_pickle)
        said = (f"exported {done.run}@{done.view.step} to {options.folder}: {done.tensors} "
                f"tensors, {done.values} values, {done.bytes} bytes")
        said += "".join(f"\nleft out: {name}" for name in done.left_out)
    print(json.dumps({**done._asdict(), "view": done.view._asdict()}) if options.json else said)
    return 0


if __name__ == "__main__":
    sys.exit(main())
