"""ckptd.convert with hostile, damaged and incomplete folders, and without a daemon or disk."""

import os
import pickle
import random
import shutil
import signal
import tempfile
import unittest
import warnings

import pytorch_support as support
import torch.distributed.checkpoint as dcp
from ckptd import convert, dcp_archive, dcp_folder, pickles
from pytorch_support import StoreTest, ckptd, filled, saver, torch
from support import DaemonTest
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex

MUTATIONS = int(os.environ.get("CKPTD_DCP_MUTATIONS", "300"))
SEED = int(os.environ.get("CKPTD_DCP_SEED", "1"))


class Evil:
    """Calls os.system when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


class Odd:
    """An object that is neither JSON nor a tensor."""


def examined(folder):
    """All that an import reads before it asks the daemon."""
    files = dcp_archive.Files(folder)
    try:
        return convert._examine(dcp_folder.read(folder), files, ())
    finally:
        files.close()


class FolderTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = os.path.join(holder.name, "step-1")
        self.marker = os.path.join(holder.name, "called")
        self.metadata = os.path.join(self.folder, ".metadata")
        self.data = os.path.join(self.folder, "__0_0.distcp")

    def save(self, state=None):
        state = state or {"w": filled((4, 3), 1), "b": filled((5,), 2, torch.bfloat16), "n": [1]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an overwritten folder
            dcp.save(state, storage_writer=dcp.FileSystemWriter(self.folder), no_dist=True)

    def change(self, change):
        """Rewrites .metadata."""
        with open(self.metadata, "rb") as file:
            metadata = pickle.load(file)
        change(metadata)
        with open(self.metadata, "wb") as file:
            pickle.dump(metadata, file)

    def refused(self, kind, pattern):
        with self.assertRaisesRegex(kind, pattern):
            examined(self.folder)
        self.assertFalse(os.path.exists(self.marker))


class Hostile(FolderTest):
    def test_a_pickle_that_calls_is_refused(self):
        self.save()
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with open(self.metadata, "wb") as file:
                pickle.dump({"state_dict_metadata": Evil(self.marker)}, file, protocol)
            self.refused((ckptd.InvalidArgument, ckptd.Corrupt), "posix.system|opcode")
        self.save()
        self.change(lambda metadata: setattr(metadata, "planner_data", Evil(self.marker)))
        self.refused(ckptd.InvalidArgument,
                     r"\.metadata: its pickle names posix.system.* it was not called")

    def test_a_call_in_an_item_is_refused(self):
        self.save({"w": torch.ones(2), "n": 1})
        self.replace("n", Evil(self.marker))
        self.refused(ckptd.InvalidArgument, "value n is a pickle of objects.*--allow-pickle n")
        self.save({"w": torch.ones(2), "n": 1})
        self.replace("w", Evil(self.marker))
        self.refused(ckptd.InvalidArgument, "tensor w: its pickle names posix.system")

    def replace(self, name, value):
        """Puts an archive of another value in the place of an item."""
        with open(os.path.join(self.folder, "__9_0.distcp"), "wb") as file:
            torch.save(value, file)
            size = file.tell()

        def change(metadata):
            for index in metadata.storage_data:
                if index.fqn == name:
                    metadata.storage_data[index] = _StorageInfo("__9_0.distcp", 0, size)
        self.change(change)

    def test_known_classes_as_functions_are_harmless(self):
        known = "torch.distributed.checkpoint.metadata\nMetadata\n"
        for raw in (f"c{known}.", f"c{known})R.", f"c{known}(lR.", f"c{known})\x81)b.",
                    f"c{known})\x81}}b}}b.", "(.", "0.", "}\x94h\x00h\x00s.", "]\x94h\x00a.",
                    "r\xff\xff\xff\x7f.", "Nr\xff\xff\xff\x7f0.", "\x8d" + "\xff" * 8,
                    "\x80\x06N.", "NN.", "]]s.", "}]Ns.", "Q.", "NQ.", "j\0\0\0\1.", "\x85."):
            with open(self.path(), "wb") as file:
                file.write(raw.encode("latin-1"))
            self.refused(ckptd.Corrupt, r"\.metadata: ")

    def path(self):
        os.makedirs(self.folder, exist_ok=True)
        return self.metadata

    def test_truncated_metadata_are_damaged(self):
        self.save()
        with open(self.metadata, "rb") as file:
            whole = file.read()
        for size in range(0, len(whole), 7):
            with open(self.metadata, "wb") as file:
                file.write(whole[:size])
            self.refused(ckptd.Corrupt, "the pickle is damaged at byte")

    def test_mutated_metadata_never_surprise(self):
        self.save()
        self.mutate(self.metadata)

    def test_mutated_archives_never_surprise(self):
        self.save()
        self.mutate(self.data)

    def mutate(self, path):
        """Reads copies with some bytes changed: each is accepted or refused with an error."""
        with open(path, "rb") as file:
            whole = file.read()
        chance = random.Random(SEED)
        refused = 0
        for _ in range(MUTATIONS):
            raw = bytearray(whole)
            for _ in range(chance.randint(1, 4)):
                raw[chance.randrange(len(raw))] = chance.choice((0, 1, 0x2E, 0x52, 0x62, 0x72, 0xFF,
                                                                 chance.randrange(256)))
            with open(path, "wb") as file:
                file.write(raw)
            try:
                state = examined(self.folder)
                self.read(state)
            except ckptd.Error as error:
                self.assertIn(self.folder, str(error))
                refused += 1
        self.assertGreater(refused, MUTATIONS // 10)

    def read(self, state):
        buffers = [torch.empty(1 << 10, dtype=torch.uint8) for _ in range(2)]
        for tensor in state.tensors.values():
            for box in convert.boxes.bands(tensor.kind.shape, tensor.kind.item_bytes(), 1 << 10):
                tensor.read(box, convert._room(buffers[0], box.sizes, tensor.kind), buffers[1])


class Damaged(FolderTest):
    def test_missing_files_are_named(self):
        self.refused(ckptd.NotFound, "folder .*step-1: it does not exist")
        self.save()
        os.remove(self.data)
        self.refused(ckptd.NotFound, "__0_0.distcp: the file is missing, and has item .*copy the")
        os.mkdir(self.data)
        self.refused(ckptd.Corrupt, "__0_0.distcp: it is no file")
        os.remove(self.metadata)
        self.refused(ckptd.NotFound, r"\.metadata: the file is missing: its save has not ended")

    def test_truncated_files_are_named(self):
        self.save()
        os.truncate(self.data, os.path.getsize(self.data) - 1)
        self.refused(ckptd.Corrupt, "__0_0.distcp: it is truncated: item . ends at byte")

    def test_other_versions_are_refused(self):
        self.save()
        self.change(lambda metadata: setattr(metadata, "version", "2.0.0"))
        self.refused(ckptd.VersionMismatch, "version '2.0.0' of DCP, and this package reads 1.0.0")
        self.save()
        self.change(lambda metadata: setattr(metadata, "future", 1))
        self.refused(ckptd.VersionMismatch, "class Metadata has the field 'future'")

    def test_chunks_must_cover_their_tensor(self):
        def chunks(metadata):
            return metadata.state_dict_metadata["w"].chunks
        self.save()
        self.change(lambda metadata: chunks(metadata).append(chunks(metadata)[0]))
        self.refused(ckptd.Corrupt, r"tensor w: its chunks at \[0, 0\] and \[0, 0\] overlap")
        self.save()
        self.change(lambda metadata: chunks(metadata).clear())
        self.refused(ckptd.Corrupt, "tensor w: its chunks have 0 of its 12 elements")
        self.save()
        self.change(lambda metadata: chunks(metadata).append(
            ChunkStorageMetadata(torch.Size([4, 0]), torch.Size([1, 3]))))
        self.refused(ckptd.Corrupt, r"tensor w: the chunk at \[4, 0\] .* is not within F32")

    def test_items_must_be_files_of_the_folder(self):
        for name in ("../other", "/etc/passwd", "", ".."):
            self.save()
            self.change(lambda metadata, name=name: self.place(metadata, relative_path=name))
            self.refused(ckptd.Corrupt, "is not one of this folder")
        self.save()
        self.change(lambda metadata: self.place(metadata, transform_descriptors=["zstd"]))
        self.refused(ckptd.InvalidArgument, "item w is stored with .*zstd")
        self.save()
        self.change(lambda metadata: self.place(metadata, offset=-1))
        self.refused(ckptd.Corrupt, "item w: -1 is no place in file")
        self.save()
        self.change(lambda metadata: metadata.storage_data.pop(MetadataIndex("w", [0, 0])))
        self.refused(ckptd.Corrupt, r"item w at \[0, 0\]: no file is named for it")

    def place(self, metadata, **changed):
        for name, value in changed.items():
            setattr(metadata.storage_data[MetadataIndex("w", [0, 0])], name, value)

    def test_a_tensor_of_another_kind_is_named(self):
        self.save()

        def change(metadata):
            metadata.state_dict_metadata["w"].properties.dtype = torch.int32
        self.change(change)
        self.refused(ckptd.Corrupt, r"tensor w: it is F32 \[4, 3\] there, and I32 \[4, 3\] in")

    def test_names_that_collide_are_refused(self):
        self.save({"a": torch.ones(2), "module.a": torch.ones(3)})
        self.refused(ckptd.InvalidArgument, "tensor a: .* have this name")

    def test_dtypes_that_cannot_be_stored_are_refused(self):
        self.save({"z": torch.ones(2, dtype=torch.complex128)})
        self.refused(ckptd.InvalidArgument, "tensor z: dtype torch.complex128 cannot be stored")

    def test_duplicates_in_a_dict_are_refused(self):
        raw = b"\x80\x02}(X\1\0\0\0aK\1X\1\0\0\0aK\2u."
        with self.assertRaisesRegex(ckptd.Corrupt, "key 'a' appears twice"):
            pickles.load(raw, "here", ())


class Imports(StoreTest, FolderTest):
    def commits(self, run):
        with ckptd.Session(run, control=True) as asker:
            return asker.query("log", target=run)

    def test_a_flipped_byte_commits_nothing(self):
        weights = filled((1 << 16,), 1)
        self.save({"w": weights, "t": filled((64, 32), 2).t()})
        with open(self.data, "rb") as file:
            whole = file.read()
        for inside in (weights, filled((64, 32), 2)):
            at = whole.find(bytes(inside.flatten().view(torch.uint8)[:256].tolist()))
            self.assertGreater(at, 0)
            raw = bytearray(whole)
            raw[at + 100] ^= 1
            with open(self.data, "wb") as file:
                file.write(raw)
            with self.assertRaisesRegex(
                    ckptd.Corrupt, "nothing was committed: .*__0_0.distcp: tensor [wt]: its bytes"):
                convert.import_dcp(self.folder, self.tiny)
            self.assertEqual(self.commits(self.tiny), [])
        with open(self.data, "wb") as file:
            file.write(whole)
        convert.import_dcp(self.folder, self.tiny)  # the empty run is used
        found = {"w": torch.zeros(1 << 16), "t": torch.zeros(32, 64)}
        with saver(self.tiny) as tiny:
            tiny.restore(found)
        self.assertTrue(torch.equal(found["w"], weights))

    def test_objects_need_their_name_to_be_allowed(self):
        self.save({"w": torch.ones(2), "odd": Odd(), "group": [{"odd": Odd(), "n": 1}]})
        with self.assertRaisesRegex(ckptd.InvalidArgument, "value (group.0.)?odd is a pickle"):
            convert.import_dcp(self.folder, self.tiny)
        convert.import_dcp(self.folder, self.tiny, allow_pickle=["odd", "group.0.odd"])
        found = {"w": torch.zeros(2), "odd": None, "group": None}
        with saver(self.tiny, allow_pickle=["odd", "group"]) as tiny:
            tiny.restore(found)
        self.assertIsInstance(found["odd"], Odd)
        self.assertIsInstance(found["group"][0]["odd"], Odd)

    def test_the_step_must_be_named(self):
        self.save()
        other = self.folder + "-last"
        shutil.copytree(self.folder, other)
        with self.assertRaisesRegex(ckptd.InvalidArgument, "does not end with a number"):
            convert.import_dcp(other, self.tiny)
        self.assertEqual(convert.import_dcp(other, self.tiny, 5).view.step, 5)


class WithoutDaemon(DaemonTest, FolderTest):
    shared = False

    def setUp(self):
        DaemonTest.setUp(self)
        store = self.folder
        FolderTest.setUp(self)
        self.store = store

    def test_a_daemon_that_dies_commits_nothing(self):
        self.save({"a": filled((1 << 18,), 1), "b": filled((1 << 18,), 2)})
        with support.killing(self.daemon, "write_pieces", calls=1):
            with self.assertRaisesRegex(ckptd.Unavailable, "may be committed|nothing was comm"):
                convert.import_dcp(self.folder, self.tiny, socket=self.daemon.socket, timeout=3)
        self.daemon.start()
        convert.import_dcp(self.folder, self.tiny, socket=self.daemon.socket)
        with self.session(control=True) as asker:
            log = asker.query("log", target=self.tiny)
        self.assertEqual([commit["step"] for commit in log], [1])

    def test_a_daemon_that_hangs_may_have_committed(self):
        self.save({"w": filled((1 << 18,), 1)})
        process = self.daemon._process
        with support.after_calls("write", 2, lambda: process.send_signal(signal.SIGSTOP)):
            with self.assertRaisesRegex(ckptd.Error, "it may be committed: look with `ckptctl log"):
                convert.import_dcp(self.folder, self.tiny, socket=self.daemon.socket, timeout=3)
        process.send_signal(signal.SIGCONT)

    def test_a_full_disk_commits_nothing(self):
        self.save({"w": filled((1 << 18,), 1)})
        free = os.statvfs(self.store)
        full = free.f_bavail * free.f_frsize
        self.daemon.stop()
        with open(os.path.join(self.store, "ckptd.toml"), "w", encoding="ascii") as file:
            file.write(f'disk_reserve = "{full >> 19}MiB"\n')  # twice as much
        self.daemon._arguments += ["--config", file.name]
        self.daemon.start()
        with self.assertRaisesRegex(ckptd.Error, "nothing was committed: .*disk"):
            convert.import_dcp(self.folder, self.tiny, socket=self.daemon.socket, timeout=10)
        with self.session(control=True) as asker:
            self.assertEqual(asker.query("log", target=self.tiny), [])


if __name__ == "__main__":
    unittest.main()
