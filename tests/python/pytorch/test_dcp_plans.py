"""ckptd.dcp with plans that DCP's planners cache."""

import itertools
import os
import unittest

import torch.distributed.checkpoint as dcp
from pytorch_support import StoreTest, filled, mesh, ranks, torch
from test_dcp import reader, writer
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.tensor import Shard, distribute_tensor


def planner_of_its_own():
    """DCP caches plans by the name of the planner's class."""
    name = f"Planner{next(_planners)}"
    return type(name, (dcp.DefaultSavePlanner,), {})(enable_plan_caching=True)


_planners = itertools.count()


class CachedPlans(StoreTest):
    def test_cached_plans_follow_a_new_value(self):
        def body(rank, run):
            planner = planner_of_its_own()
            tiny = writer(run)
            state = {"w": distribute_tensor(filled((5, 3), 1), mesh(2), [Shard(0)],
                                            src_data_rank=None), "step": 0}
            for step in range(1, 5):
                if step == 3:
                    state["scheduler"] = {"lr": 0.1}
                dcp.save(state, checkpoint_id=f"{step}", storage_writer=tiny, planner=planner)
            found = {"w": distribute_tensor(torch.zeros(5, 3), mesh(2), [Shard(0)],
                                            src_data_rank=None), "scheduler": {"lr": 0}}
            dcp.load(found, storage_reader=reader(run))
            assert found["scheduler"]["lr"] == 0.1
            assert torch.equal(found["w"].full_tensor(), filled((5, 3), 1))
        ranks(2, body, self.tiny)

    def test_refused_content_stays_refused_with_a_new_writer(self):
        def body(rank, run):
            planner, told = planner_of_its_own(), []
            for step in range(3):
                state = {"w": torch.full((3,), float(rank if step < 2 else 1))}
                try:
                    dcp.save(state, checkpoint_id=f"{step}", storage_writer=writer(run),
                             planner=planner)
                except CheckpointException as error:
                    told.append("bring different content" in str(error))
            assert told == [True, True], told
        ranks(2, body, self.tiny)

    def test_plan_that_failed_on_the_coordinator_is_made_again(self):
        planner, tiny = planner_of_its_own(), writer(self.tiny)
        state = {"w": torch.ones(3)}
        dcp.save(state, checkpoint_id="1", storage_writer=tiny, planner=planner)
        state["more"] = [1, 2]
        with self.assertRaisesRegex(CheckpointException, "does not end with a number"):
            dcp.save(state, checkpoint_id="final", storage_writer=tiny, planner=planner)
        dcp.save(state, checkpoint_id="2", storage_writer=tiny, planner=planner)
        found = {"w": torch.zeros(3), "more": [0, 0]}
        dcp.load(found, storage_reader=reader(self.tiny))
        self.assertEqual(found["more"], [1, 2])

    def test_cached_plan_of_another_dtype_is_refused(self):
        planner, tiny = planner_of_its_own(), writer(self.tiny)
        for value in (torch.ones(9), torch.ones(9, dtype=torch.bfloat16)):
            try:
                dcp.save({"w": value}, storage_writer=tiny, planner=planner)
            except CheckpointException as error:
                self.assertIn("tensor w on rank 0: its part in memory is torch.bfloat16 [9], not "
                              "torch.float32 [9]", str(error))
        log = tiny._mine().session.query("log", target=self.tiny)
        self.assertEqual([commit["step"] for commit in log], [1])

    def test_plans_that_another_writer_has_cached_are_refused(self):
        for other in (dcp.FileSystemWriter(os.path.join(self.folder, self.tiny)),
                      writer(self.tiny + "-other")):
            planner, state = planner_of_its_own(), {"w": torch.ones(9)}
            dcp.save(state, storage_writer=other, planner=planner)
            tiny = writer(f"{self.tiny}-{type(other).__module__}")
            with self.assertRaisesRegex(CheckpointException,
                                        "the planner has cached the plans of (run|another)"):
                dcp.save(state, storage_writer=tiny, planner=planner)
            dcp.save({**state, "more": 5}, storage_writer=tiny, planner=planner)  # a new plan
            tiny.close()


if __name__ == "__main__":
    unittest.main()
