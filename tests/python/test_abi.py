"""The generated declarations against the headers and the C compiler; exceptions by status."""

import ctypes
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

from support import ROOT, ckptd
from ckptd import _abi, _library, errors, units

GENERATOR = ROOT / "client" / "python" / "declarations.py"
INCLUDE = ROOT / "client" / "include"


def generator(*arguments):
    return subprocess.run([sys.executable, str(GENERATOR), *arguments], capture_output=True,
                          text=True, timeout=60, check=False)


class Declarations(unittest.TestCase):
    def test_declarations_match_headers(self):
        ran = generator("--check")
        self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_a_changed_header_is_noticed(self):
        sys.path.insert(0, str(GENERATOR.parent))
        self.addCleanup(sys.path.remove, str(GENERATOR.parent))
        import declarations
        abi = declarations.read_headers()
        text = (INCLUDE / "ckpt" / "ckpt_hold.h").read_text(encoding="utf-8")
        abi.read(text.replace("uint32_t lease_ms;", "uint32_t lease_ms; uint64_t more;"))
        self.assertNotEqual(declarations.python_text(abi),
                            declarations.OUTPUT.read_text(encoding="utf-8"))

    def test_an_unknown_type_is_refused(self):
        sys.path.insert(0, str(GENERATOR.parent))
        self.addCleanup(sys.path.remove, str(GENERATOR.parent))
        import declarations
        with self.assertRaises(declarations.Refused):
            declarations.Abi().read("CKPT_API float ckpt_ratio(void);")

    def test_layouts_match_c_compiler(self):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "layouts.c")
            program = os.path.join(folder, "layouts")
            with open(source, "w", encoding="utf-8") as file:
                file.write(generator("--layouts").stdout)
            subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-I", str(INCLUDE), source,
                            "-o", program], check=True, timeout=60)
            lines = subprocess.run([program], capture_output=True, text=True, check=True,
                                   timeout=60).stdout.split("\n")
        structs = 0
        for line in filter(None, lines):
            name, *numbers = line.split()
            struct = getattr(_abi, name, None)
            if struct is None:  # an enum, which is an int
                self.assertEqual(int(numbers[0]), ctypes.sizeof(ctypes.c_int), line)
            elif len(numbers) == 1:
                structs += 1
                self.assertEqual(ctypes.sizeof(struct), int(numbers[0]), line)
            else:
                field = getattr(struct, numbers[0])
                self.assertEqual([field.offset, field.size], [int(n) for n in numbers[1:]], line)
        self.assertEqual(structs, len([kind for kind in vars(_abi).values()
                                       if isinstance(kind, type(ctypes.Structure))
                                       and kind is not ctypes.Structure]))

    def test_the_library_has_every_function(self):
        library = _library.load()
        for name in _abi.FUNCTIONS:
            self.assertTrue(callable(getattr(library, name)), name)


class Errors(unittest.TestCase):
    def test_each_status_has_a_class_of_its_own(self):
        statuses = {name: value for name, value in vars(_abi).items() if name.startswith("CKPT_E_")
                    and name != "CKPT_EXPERT_TOKENS_MAX"}
        self.assertEqual(set(statuses.values()), set(errors.BY_STATUS))
        for name, status in statuses.items():
            error = errors.of_status(status, "unit w: a sentence")
            self.assertEqual((str(error), error.status), ("unit w: a sentence", status), name)
            self.assertIsInstance(error, ckptd.Error)
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), str(again)), (type(error), str(error)))

    def test_an_unknown_status_keeps_its_sentence(self):
        error = errors.of_status(99, "a sentence")
        self.assertEqual((type(error), error.status), (ckptd.Error, 99))
        self.assertIn("a sentence", str(error))


class Sizes(unittest.TestCase):
    def test_dtypes_have_the_sizes_of_the_formats(self):
        text = (ROOT / "formats" / "dtype.cc").read_text(encoding="utf-8")
        import re
        known = {name: int(bits) for name, bits in re.findall(r'\{"(\w+)", (\d+)\}', text)}
        self.assertEqual(units.DTYPE_BITS, known)

    def test_tensors_are_laid_out_in_order(self):
        placed = ckptd.Unit("u", (ckptd.Tensor("a", "BF16", (3, 5)), ckptd.Tensor("b", "F4", (4,)),
                                  ckptd.Tensor("c", "F32", ()))).placed()
        self.assertEqual([t.offset for t in placed.tensors], [0, 30, 32])
        self.assertEqual(placed.bytes, 36)

    def test_part_of_a_byte_is_refused(self):
        with self.assertRaisesRegex(ckptd.InvalidArgument, "tensor a: 12 bits"):
            ckptd.Unit("u", (ckptd.Tensor("a", "F4", (3,)),)).placed()


if __name__ == "__main__":
    unittest.main()
