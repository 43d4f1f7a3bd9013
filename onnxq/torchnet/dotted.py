"""Modules whose parameters, buffers and children have names with dots, as initializers and tensors of ONNX do.

torch's own tables hold such names without trouble, and state_dict, optimizers and DistributedDataParallel read the
tables. Only `register_parameter` and the search for unexpected keys when a state is loaded take dots for levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn


class DottedNames(nn.Module):
    """A module that finds its own names again when a state is loaded, dots or not."""

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Tensor],
        prefix: str,
        local_metadata: Mapping[str, object],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        found: list[str] = []
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            found,
            error_msgs,  # type: ignore[arg-type]
        )
        unexpected_keys.extend(key for key in found if not self._owns(key.removeprefix(prefix)))

    def __setattr__(self, name: str, value: Any) -> None:
        """As torch does it; but an attribute such as `training` may have the name of an initializer.

        A tensor for a name that has one takes its place, as `load_state_dict(assign=True)` wants it, dots or not.
        """
        if isinstance(value, nn.Parameter) and name in self.__dict__.get("_parameters", ()):
            self._parameters[name] = value
        elif isinstance(value, Tensor) and name in self.__dict__.get("_buffers", ()):
            self._buffers[name] = value
        elif isinstance(value, nn.Module | Tensor):
            super().__setattr__(name, value)
        else:
            object.__setattr__(self, name, value)

    def _owns(self, name: str) -> bool:
        if name in self._parameters or name in self._buffers:
            return True
        return any(name.startswith(f"{child}.") for child in self._modules)


class ModuleTable(DottedNames):
    """Modules by the names of tensors."""

    def put(self, name: str, module: nn.Module) -> None:
        self._modules[name] = module

    def __getitem__(self, name: str) -> Any:
        return self._modules[name]

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def items(self) -> Iterator[tuple[str, Any]]:
        return iter(self._modules.items())

    def values(self) -> Iterator[Any]:
        return iter(self._modules.values())
