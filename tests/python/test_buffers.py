"""Memory of buffers, arrays and tensors; and everything that has none."""

import array
import ctypes
import mmap
import unittest

from support import ckptd

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None


def seen(memory):
    return ctypes.string_at(memory.address, memory.nbytes)


class TorchLike:
    """Duck-typed: what Memory.of asks a torch tensor."""

    class Device:
        def __init__(self, kind):
            self.type = kind

        def __str__(self):
            return self.type + ":0"

    def __init__(self, data=b"1234", device="cpu", contiguous=True, layout="torch.strided",
                 dtype="torch.bfloat16", conj=False, address=None):
        self._bytes = ctypes.create_string_buffer(data, len(data))
        self._address = ctypes.addressof(self._bytes) if address is None else address
        self.shape = (len(data) // 2,)
        self.device, self.layout, self.dtype = self.Device(device), layout, dtype
        self._contiguous, self._conj = contiguous, conj

    def data_ptr(self):
        return self._address

    def element_size(self):
        return 2

    def numel(self):
        return self.shape[0]

    def is_contiguous(self):
        return self._contiguous

    def is_conj(self):
        return self._conj


class Buffers(unittest.TestCase):
    def test_objects_with_the_buffer_protocol(self):
        anonymous = mmap.mmap(-1, 8)
        anonymous[:] = b"12345678"
        for data, readonly in ((b"12345678", True), (bytearray(b"12345678"), False),
                               (array.array("B", b"12345678"), False), (anonymous, False),
                               (memoryview(b"0123456789")[1:9], True),
                               ((ctypes.c_char * 8)(*b"12345678"), False)):
            with self.subTest(type(data).__name__):
                memory = ckptd.Memory.of(data)
                self.assertEqual((seen(memory), memory.readonly), (b"12345678", readonly))

    def test_memory_keeps_its_owner_alive(self):
        memory = ckptd.Memory.of(bytearray(b"abcd"))
        self.assertEqual(seen(memory), b"abcd")
        data = bytearray(b"abcd")
        memory = ckptd.Memory.of(data)
        with self.assertRaises(BufferError):  # resizing would move the bytes
            data.append(1)
        del memory
        data.append(1)

    def test_objects_without_memory_are_refused(self):
        for data in (None, "text", 7, object(), [1.0]):
            with self.assertRaisesRegex(ckptd.InvalidArgument, "unit w: .* shows no memory"):
                ckptd.Memory.of(data, "unit w")
        self.assertEqual(ckptd.Memory.of(b"").nbytes, 0)

    def test_a_view_with_gaps_is_refused(self):
        with self.assertRaisesRegex(ckptd.InvalidArgument, r"unit w: shape \(4,\) is not contig"):
            ckptd.Memory.of(memoryview(bytearray(8))[::2], "unit w")

    def test_read_only_memory_is_no_target(self):
        with self.assertRaisesRegex(ckptd.InvalidArgument, "unit w: it is read-only"):
            ckptd.Memory.of(b"abc").writable("unit w")


class Tensors(unittest.TestCase):
    def test_a_torch_like_tensor(self):
        memory = ckptd.Memory.of(TorchLike())
        self.assertEqual((seen(memory), memory.dtype, memory.shape), (b"1234", "BF16", (2,)))

    def test_tensors_without_host_memory_are_refused(self):
        for sentence, options in (("meta device has no bytes", {"device": "meta"}),
                                  ("is on cuda:0; pass tensor.cpu", {"device": "cuda"}),
                                  (r"pass tensor.contiguous\(\)", {"contiguous": False}),
                                  ("torch.sparse_coo", {"layout": "torch.sparse_coo"}),
                                  ("resolve_conj", {"conj": True}),
                                  ("no storage of its own", {"address": 0})):
            with self.assertRaisesRegex(ckptd.InvalidArgument, "unit w: .*" + sentence):
                ckptd.Memory.of(TorchLike(**options), "unit w")

    def test_a_unit_of_tensors(self):
        unit = ckptd.Unit.of("w", {"a": TorchLike(), "b": TorchLike(b"123456")}).placed()
        self.assertEqual((unit.bytes, unit.tensors[1]), (10, ckptd.Tensor("b", "BF16", (3,), 4)))
        with self.assertRaisesRegex(ckptd.InvalidArgument, "unit w tensor a: its dtype"):
            ckptd.Unit.of("w", {"a": TorchLike(dtype="torch.qint8")})

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_torch(self):
        for dtype, name in ((torch.bfloat16, "BF16"), (torch.float8_e4m3fn, "F8_E4M3"),
                            (torch.float32, "F32"), (torch.int64, "I64"), (torch.bool, "BOOL")):
            tensor = torch.arange(12).reshape(3, 4).to(dtype)
            memory = ckptd.Memory.of(tensor)
            self.assertEqual((memory.address, memory.dtype, memory.shape),
                             (tensor.data_ptr(), name, (3, 4)))
            self.assertEqual(memory.nbytes, tensor.untyped_storage().nbytes())
        parameter = torch.nn.Parameter(torch.ones(4))
        self.assertEqual(ckptd.Memory.of(parameter).address, parameter.data_ptr())
        for wrong in (torch.ones(4, 4).t()[1:], torch.ones(4, device="meta"),
                      torch.eye(3).to_sparse(), torch.ones(3, dtype=torch.complex64).conj()):
            with self.assertRaises(ckptd.InvalidArgument):
                ckptd.Memory.of(wrong)


@unittest.skipIf(numpy is None, "numpy is not installed")
class Arrays(unittest.TestCase):
    def test_arrays(self):
        for dtype, name in (("f4", "F32"), ("f2", "F16"), ("u1", "U8"), ("i8", "I64"),
                            ("?", "BOOL"), ("c8", "C64"), (">f4", None)):
            data = numpy.arange(6).reshape(2, 3).astype(dtype)
            memory = ckptd.Memory.of(data)
            self.assertEqual((seen(memory), memory.dtype, memory.shape),
                             (data.tobytes(), name, (2, 3)))
        data.setflags(write=False)
        self.assertTrue(ckptd.Memory.of(data).readonly)

    def test_views(self):
        data = numpy.arange(24, dtype="f4").reshape(4, 6)
        self.assertEqual(seen(ckptd.Memory.of(data[1:3])), data[1:3].tobytes())
        self.assertEqual(seen(ckptd.Memory.of(data[1:2, :])), data[1].tobytes())
        self.assertEqual(ckptd.Memory.of(data[0:0]).nbytes, 0)
        for wrong in (data.T, data[:, :3], data[::2], data[::-1]):
            with self.assertRaisesRegex(ckptd.InvalidArgument, "not contiguous"):
                ckptd.Memory.of(wrong)
        with self.assertRaisesRegex(ckptd.InvalidArgument, "Python objects"):
            ckptd.Memory.of(numpy.array([None]))

    def test_dlpack(self):
        class OnlyDlpack:
            def __init__(self, data, device=(1, 0)):
                self.data, self.device = data, device

            def __dlpack_device__(self):
                return self.device

            def __dlpack__(self, **_):
                return self.data.__dlpack__()

        data = numpy.arange(6, dtype="f4").reshape(2, 3)
        memory = ckptd.Memory.of(OnlyDlpack(data))
        self.assertEqual((seen(memory), memory.dtype, memory.shape),
                         (data.tobytes(), "F32", (2, 3)))
        with self.assertRaisesRegex(ckptd.InvalidArgument, "not contiguous"):
            ckptd.Memory.of(OnlyDlpack(data.T))
        with self.assertRaisesRegex(ckptd.InvalidArgument, r"device \(2, 0\) is not the host"):
            ckptd.Memory.of(OnlyDlpack(data, (2, 0)))


if __name__ == "__main__":
    unittest.main()
