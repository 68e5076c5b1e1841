"""The config of a transformers model, for the metadata of a run. Imports neither torch nor
transformers."""

import json
import logging
from typing import Any, Mapping, Optional

from . import run_metadata

_log = logging.getLogger("ckptd.model_config")


def of_model(model: Any, own: Optional[Mapping[str, Any]] = None) -> Optional[Mapping[str, Any]]:
    """`own`, and with it the config of a transformers model as save_pretrained writes it. A config
    that cannot be kept is left out, with a warning: it must not end a training."""
    model = _unwrapped(model)
    config = getattr(model, "config", None)
    if not hasattr(config, "to_json_string") or run_metadata.CONFIG in (own or {}):
        return own
    try:
        found = json.loads(config.to_json_string())
        # save_pretrained sets these two, and drops the name of the file that was loaded.
        found["architectures"] = [type(model).__name__.removeprefix("FSDP")]
        found["dtype"] = str(model.dtype).rpartition(".")[2]
        found.pop("transformers_weights", None)
        return run_metadata.copy({**(own or {}), run_metadata.CONFIG: found})
    except Exception as error:
        _log.warning("the config of the model is not kept with the run, so that an export has no "
                     "config.json: %s", error)
        return own


def _unwrapped(model: Any) -> Any:
    """The model inside DistributedDataParallel and torch.compile, in any order."""
    for name in ("module", "_orig_mod") * 2:
        model = getattr(model, name, model)
    return model
