"""A daemon that dies, is absent or is replaced; permissions; forks; interrupts."""

import os
import signal
import socket
import struct
import threading
import unittest

import support
from support import ROOT, Alarm, DaemonTest, alarm_after, ckptd, floats, forked, save, unit

LONG = 3600.0
RECORDED = ROOT / "tests" / "support" / "recorded" / "version2_control.txt"


class DaemonDies(DaemonTest):
    shared = False

    def test_between_saves(self):
        session, epoch = self.joined(units=[unit("w")])
        for step in (1, 2, 3):
            save(epoch, step, {"w": floats(step)})
            self.daemon.stop(signal.SIGKILL)
            self.daemon.start()
        save(epoch, 4, {"w": floats(4)})
        into = floats(0)
        for step in (1, 2, 3, 4):
            session.restore(step, exact=True).read({"w": into})
            self.assertEqual(into, floats(step))
        epoch.leave()

    def test_while_a_snapshot_is_filled(self):
        session, epoch = self.joined()
        with epoch.begin(1) as snapshot:
            snapshot.write("layers.0", floats(1))
            self.daemon.stop(signal.SIGKILL)
            self.daemon.start()
            snapshot.write("layers.1", floats(2))
        snapshot.wait(timeout=support.TIMEOUT)
        into = floats(0)
        session.restore(1, exact=True).read({"layers.1": into})
        self.assertEqual(into, floats(2))

    def test_silence_is_reported_while_daemon_is_down(self):
        session, epoch = self.joined()
        self.daemon.stop(signal.SIGKILL)
        while session.silence() == 0:
            session.poll(0.05)
        with self.assertRaises(ckptd.Unavailable):
            session.query("status", timeout=0.2)
        self.daemon.start()
        self.assertEqual(session.query("status")["state"], "ready")


class NoDaemon(unittest.TestCase):
    def test_a_missing_socket_is_named_with_the_remedy(self):
        session = ckptd.Session("tiny", socket="/nonexistent/s", timeout=0.1)
        with self.assertRaisesRegex(ckptd.Unavailable, "socket /nonexistent/s: .*start ckptd"):
            session.open()
        with self.assertRaises(ConnectionError):
            session.open()

    def test_missing_socket_setting_is_refused(self):
        before = os.environ.pop("CKPTD_SOCKET", None)
        try:
            with self.assertRaisesRegex(ckptd.InvalidArgument, "CKPTD_SOCKET"):
                ckptd.Session("tiny").open()
        finally:
            if before is not None:
                os.environ["CKPTD_SOCKET"] = before


class Permissions(DaemonTest):
    shared = False

    def refused(self, prepare):
        """Error text that an unprivileged user gets; `prepare` drops root's rights, if any."""
        session = self.session(timeout=5)

        def child():
            prepare()
            session.open()
            return "opened"
        return forked(child)

    def test_a_closed_folder(self):
        def prepare():
            if os.geteuid() == 0:
                os.setuid(65534)
        os.chmod(self.folder, 0)
        self.addCleanup(os.chmod, self.folder, 0o700)
        said = self.refused(prepare)
        self.assertRegex(said, "PermissionDenied: .*may not open it")

    @unittest.skipIf(os.geteuid() != 0, "only root can become another user")
    def test_a_user_who_is_not_allowed(self):
        os.chmod(self.folder, 0o711)
        said = self.refused(lambda: os.setuid(65534))
        self.assertRegex(said, "PermissionDenied: .*65534")


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def welcome_of_version(version):
    """A recorded greeting of ckptd with its protocol version replaced."""
    lines = RECORDED.read_text(encoding="utf-8").split("\n")
    frame = bytes.fromhex(next(line for line in lines if line.startswith("< "))[2:])
    at = frame.index(struct.pack("<II", 0x14, 2)) + 4  # after the table's offset to its vtable
    frame = frame[:at] + struct.pack("<I", version) + frame[at + 4:]
    return frame[:8] + struct.pack("<II", crc32c(frame[16:]), 0) + frame[16:]


class OtherVersion(unittest.TestCase):
    def greeted(self, answer):
        path = os.path.join(self.temp_folder(), "s")
        server = socket.socket(socket.AF_UNIX)
        self.addCleanup(server.close)
        server.bind(path)
        server.listen()

        def serve():
            try:
                while True:
                    with server.accept()[0] as peer:
                        if peer.recv(1 << 16):
                            peer.sendall(answer)
                            peer.recv(1)
            except OSError:
                pass  # the test is over
        thread = threading.Thread(target=serve)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown, socket.SHUT_RDWR)
        return ckptd.Session("tiny", socket=path, control=True, timeout=support.TIMEOUT)

    def temp_folder(self):
        import tempfile
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def test_recorded_greeting_is_accepted(self):
        with self.greeted(welcome_of_version(2)) as session:
            session.open()

    def test_an_older_daemon_is_refused_with_the_remedy(self):
        with self.assertRaisesRegex(ckptd.VersionMismatch, "ckptd speaks 1, .*upgrade ckptd"):
            self.greeted(welcome_of_version(1)).open()

    def test_a_newer_daemon_is_refused(self):
        with self.assertRaisesRegex(ckptd.VersionMismatch, "ckptd speaks 99"):
            self.greeted(welcome_of_version(99)).open()

    def test_another_library_is_refused(self):
        from ckptd import _library
        for version in (0x00000000, 0x00010001, 0x00000000):
            with self.assertRaisesRegex(ckptd.VersionMismatch, "library x: .*one wheel"):
                _library._check_version("x", version)
        _library._check_version("x", 0x00000005)  # newer, of the same major version


class Forks(DaemonTest):
    shared = False

    def test_handles_are_inert_in_the_child(self):
        session, epoch = self.joined()
        with epoch.begin(1) as snapshot:
            snapshot.write("layers.0", floats(1))

            def child():
                for use in (lambda: snapshot.write("layers.1", floats(9)), snapshot.end,
                            snapshot.info, session.poll, epoch.leave,
                            lambda: session.query("status"), lambda: snapshot.abort("no")):
                    try:
                        use()
                        return "the child used the handle of its parent"
                    except ckptd.FailedPrecondition as error:
                        if "forked" not in str(error):
                            return error
                snapshot.free()
                session.close()
                return "inert"
            self.assertEqual(forked(child), "inert")
            snapshot.write("layers.1", floats(2))
        snapshot.wait(timeout=support.TIMEOUT)
        into = floats(0)
        session.restore(1, exact=True).read({"layers.1": into})
        self.assertEqual(into, floats(2))

    def test_child_opens_its_own_session(self):
        session = self.session()
        session.open()

        def child():
            with ckptd.Session(**session.description._asdict()) as own:
                return own.query("status")["state"]
        self.assertEqual(forked(child), "ready")
        # A session that was never opened can be opened in the child.
        fresh = self.session()
        self.assertEqual(forked(lambda: fresh.query("status")["state"]), "ready")


class Interrupts(DaemonTest):
    """Without interrupts each wait would last longer than ctest's timeout of this program."""

    def setUp(self):
        super().setUp()
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # else ignored in jobs
        self.addCleanup(signal.signal, signal.SIGINT, before)

    def test_control_c_ends_a_join(self):
        waits = []

        def waiting(why):
            waits.append(why)
            os.kill(os.getpid(), signal.SIGINT)
        session = self.session(waiting=waiting)
        session.register([unit("w")])
        with self.assertRaises(KeyboardInterrupt):
            session.join(0, 2, timeout=LONG)
        self.assertIn("rank 1 of 2", waits[0])
        session.close()
        _, epoch = self.joined(units=[unit("w")])  # nothing is left of the interrupted join
        save(epoch, 1, {"w": floats(1)})

    def test_signal_handler_ends_every_wait(self):
        session, epoch = self.joined()
        with epoch.begin(1) as snapshot:
            snapshot.write("layers.0", floats(1))
            waits = {
                "wait": lambda: snapshot.wait(timeout=LONG),
                "get": lambda: epoch.get("nobody.sets.this", LONG),
                "poll": lambda: session.poll(LONG),
                "open": lambda: ckptd.Session(
                    "tiny", socket=self.folder + "/none", timeout=LONG).open()}
            for name, wait in waits.items():
                with self.subTest(name), self.assertRaises(Alarm), alarm_after(0.2):
                    while True:
                        wait()
            snapshot.write("layers.1", floats(2))
        snapshot.wait(timeout=support.TIMEOUT)

    def test_callback_exception_propagates(self):
        def waiting(_):
            raise ZeroDivisionError("of the callback")
        session = self.session(waiting=waiting)
        session.register([unit("w")])
        with self.assertRaisesRegex(ZeroDivisionError, "of the callback"):
            session.join(0, 2, timeout=LONG)

    def test_a_callback_that_uses_the_session_is_refused(self):
        for use in (lambda: session.query("status"), lambda: session.close()):
            session = self.session(waiting=lambda _: use())
            session.register([unit("w")])
            with self.assertRaisesRegex(ckptd.FailedPrecondition, "in progress"):
                session.join(0, 2, timeout=LONG)
            session.close()

    def test_handle_freed_during_call_is_released_later(self):
        session, epoch = self.joined(units=[unit("w")])
        with epoch:
            save(epoch, 1, {"w": floats(1)})
        session.close()

        def waiting(_):
            view.__exit__(None, None, None)
            freed.append(len(session.handle()._garbage))
            raise Alarm
        freed = []
        session = self.session(waiting=waiting)
        session.register([unit("w")])
        view = session.restore().__enter__()
        self.assertEqual(len(session.query("status")["holds"]), 1)
        with self.assertRaises(Alarm):
            session.join(0, 2, timeout=LONG)
        self.assertEqual(freed, [1])  # it waited
        self.assertEqual(session.query("status")["holds"], [])


if __name__ == "__main__":
    unittest.main()
