"""ckptd.local: one daemon for all processes of a store, ended by the last of them."""

import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import unittest

import support
from support import Daemon, ckptd, floats, forked, save, unit
from ckptd.local import daemon_pid, runtime_folder

HOLD = """
import sys
import support
from support import ckptd
with ckptd.local(sys.argv[1], arena="64MiB") as daemon:
    print(daemon.pid, flush=True)
    sys.stdin.read()
"""


class LocalTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.store = os.path.join(self.folder, "store")
        self.set_environment("XDG_RUNTIME_DIR", self.folder)
        self.set_environment("CKPTD_SOCKET", "unix:/before")

    def set_environment(self, name, value):
        before = os.environ.get(name)
        os.environ[name] = value
        self.addCleanup(os.environ.update if before else os.environ.pop,
                        {name: before} if before else name)

    def local(self):
        return ckptd.local(self.store, arena="64MiB")

    def holder(self):
        """Another process that uses the store: (process, pid of its daemon)."""
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, self.store], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, cwd=pathlib.Path(__file__).parent)

        def end():
            process.kill()
            process.communicate()
        self.addCleanup(end)
        return process, int(process.stdout.readline())

    def assert_ended(self, pid):
        """Waits for the end of a process that is or is not a child of this one."""
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        watch = select.poll()
        watch.register(descriptor, select.POLLIN)
        self.assertTrue(watch.poll(support.TIMEOUT * 1000), f"process {pid} still runs")
        os.close(descriptor)


class Lifetime(LocalTest):
    def test_starts_and_ends_a_daemon(self):
        for step in (1, 2):
            with self.local() as daemon:
                pid = daemon.pid
                self.assertEqual(os.environ["CKPTD_SOCKET"], daemon.socket)
                with ckptd.Session("tiny", arena_bytes=support.ARENA) as session:
                    session.register([unit("w")])
                    with session.join() as epoch:
                        self.assertEqual(epoch.resume is not None, step == 2)
                        save(epoch, step, {"w": floats(step)})
            self.assertEqual(os.environ["CKPTD_SOCKET"], "unix:/before")
            self.assert_ended(pid)
        with self.assertRaisesRegex(ckptd.FailedPrecondition, "in the block of"):
            print(daemon.socket)

    def test_blocks_of_one_process_share_daemon(self):
        with self.local() as outer:
            with self.local() as inner:
                self.assertEqual(inner.pid, outer.pid)
            self.assertEqual(daemon_pid(outer.socket[len("unix:"):]), outer.pid)
            pid = outer.pid
        self.assert_ended(pid)

    def test_daemon_survives_kill_of_starter(self):
        starter, pid = self.holder()
        with self.local() as daemon:
            self.assertEqual(daemon.pid, pid)
            starter.kill()
            starter.wait()
            with ckptd.Session("tiny", arena_bytes=support.ARENA) as session:
                self.assertEqual(session.query("status")["state"], "ready")
        self.assert_ended(pid)

    def test_daemon_survives_exit_of_starter(self):
        with self.local() as daemon:
            pid = daemon.pid
            other, same = self.holder()
            self.assertEqual(same, pid)
        self.assertEqual(daemon_pid(f"{self.folder}/ckptd/{os.path.basename(daemon_folder(self))}"
                                    "/ckptd.sock"), pid)
        other.communicate("")
        self.assertEqual(other.returncode, 0)
        self.assert_ended(pid)

    def test_daemon_of_killed_process_is_reused(self):
        starter, pid = self.holder()
        starter.kill()
        starter.wait()
        with self.local() as daemon:
            self.assertEqual(daemon.pid, pid)
        self.assert_ended(pid)

    def test_dead_daemon_is_restarted(self):
        with self.local() as daemon:
            pid = daemon.pid
            os.kill(pid, signal.SIGKILL)
            self.assert_ended(pid)
            with self.local():
                self.assertNotIn(daemon.pid, (None, pid))

    def test_forked_child_does_not_stop_daemon(self):
        with self.local() as daemon:
            def child():
                daemon.__exit__(None, None, None)
                return "left"
            self.assertEqual(forked(child), "left")
            with ckptd.Session("tiny", control=True) as session:
                session.query("status")


def daemon_folder(test):
    from ckptd.local import _folder_of
    return _folder_of(os.path.realpath(test.store))


class Refusals(LocalTest):
    def test_a_store_that_another_daemon_has(self):
        daemon = Daemon(self.folder)
        self.addCleanup(daemon.stop)
        with self.assertRaisesRegex(ckptd.FailedPrecondition, "another ckptd is running on it"):
            with ckptd.local(os.path.join(self.folder, "data")):
                pass

    def test_a_store_that_is_a_file(self):
        with open(self.store, "wb"):
            pass
        with self.assertRaisesRegex(ckptd.InvalidArgument, f"store {self.store}: File exists"):
            with self.local():
                pass

    def test_missing_temporary_folder_is_not_created(self):
        missing = os.path.join(self.folder, "missing")
        self.set_environment("XDG_RUNTIME_DIR", "")
        self.set_environment("TMPDIR", missing)
        with self.assertRaisesRegex(ckptd.InvalidArgument, f"TMPDIR={missing}: no such folder"):
            with ckptd.local(os.path.join(missing, "store"), arena="64MiB"):
                pass
        self.assertFalse(os.path.exists(missing))

    def test_a_runtime_folder_that_is_not_private(self):
        path = os.path.join(self.folder, "ckptd")
        os.mkdir(path, 0o755)
        with self.assertRaisesRegex(ckptd.PermissionDenied, "others may open it .mode 755"):
            runtime_folder()
        os.rmdir(path)
        os.symlink(self.folder, path)
        with self.assertRaisesRegex(ckptd.PermissionDenied, "it is no directory"):
            runtime_folder()
        os.unlink(path)
        self.assertEqual(runtime_folder(), path)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o700)

    @unittest.skipIf(os.geteuid() != 0, "only root can give a folder away")
    def test_a_runtime_folder_of_another_user(self):
        path = os.path.join(self.folder, "ckptd")
        os.mkdir(path, 0o700)
        os.chown(path, 65534, 65534)
        with self.assertRaisesRegex(ckptd.PermissionDenied, "it belongs to user 65534"):
            runtime_folder()


if __name__ == "__main__":
    unittest.main()
