#!/usr/bin/env python3
"""Tests of spills.py: its reading of the output of ptxas, and its verdicts."""

import unittest

import spills

REPORT = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4copyPf' for 'sm_80'
ptxas info    : Function properties for _Z4copyPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 376 bytes cmem[0]
ptxas info    : Compiling entry function '_Z4packPf' for 'sm_90'
ptxas info    : Function properties for _Z4packPf
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 16 bytes cumulative stack size
"""


class Spills(unittest.TestCase):
    def test_every_kernel_is_read(self):
        self.assertEqual(spills.read_report(REPORT),
                         [("_Z4copyPf", "sm_80", 0, 0), ("_Z4packPf", "sm_90", 12, 8)])

    def test_only_spills_are_faults(self):
        self.assertEqual(spills.faults_of("pack.cu", REPORT),
                         ["pack.cu: _Z4packPf for sm_90 spills 12 bytes and loads 8"])
        self.assertEqual(spills.faults_of("copy.cu", REPORT.replace(" 12 bytes", " 0 bytes")
                                          .replace(" 8 bytes", " 0 bytes")), [])

    def test_report_without_kernels_is_a_fault(self):
        self.assertEqual(spills.faults_of("x.cu", "ptxas info : 0 bytes gmem\n"),
                         ["x.cu: ptxas says nothing of any kernel"])

    def test_reporting_command_writes_no_build_output(self):
        entry = {"file": "x.cu", "command": "nvcc -O2 -MD -MT x.o -MF x.o.d -x cu -c x.cu -o x.o"}
        self.assertEqual(spills.reporting_command(entry, "new.o"),
                         ["nvcc", "-O2", "-x", "cu", "-c", "x.cu", "-o", "new.o", "-Xptxas=-v"])
        with self.assertRaises(ValueError):
            spills.reporting_command({"file": "x.cu", "command": "nvcc -c x.cu"}, "new.o")


if __name__ == "__main__":
    unittest.main()
