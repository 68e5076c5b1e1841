"""Job: rank and size of a training job, and its only collective, through torch.distributed."""

from typing import Any, List, Optional

ALONE = object()  # as a group: this process saves by itself, whatever other ranks there are


class Job:
    """`group`: a process group, or ALONE; None: the default group if it is initialised, else one
    process."""

    def __init__(self, group: Optional[Any] = None) -> None:
        import torch.distributed as dist
        self._group = group
        used = group is not ALONE and dist.is_available() and dist.is_initialized()
        self.rank: int = dist.get_rank(group) if used else 0
        self.size: int = dist.get_world_size(group) if used else 1

    def gather(self, mine: Any) -> List[Any]:
        """The values that the ranks give, by rank. All ranks call it."""
        if self.size == 1:
            return [mine]
        import torch.distributed as dist
        found: List[Any] = [None] * self.size
        dist.all_gather_object(found, mine, group=self._group)
        return found
