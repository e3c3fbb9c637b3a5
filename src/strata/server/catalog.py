"""The models that can be served, and which of them a request means."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from strata.core.errors import UsageError
from strata.server.engine_process import EngineProcess
from strata.server.errors import ApiError
from strata.server.served import DEFAULT_NAME, ServedModel


@dataclass(eq=False, slots=True)
class Model:
    """A model that can be loaded, and what is known of it by now."""

    served: ServedModel
    engine: Callable[[], EngineProcess]
    """A new process for it, not started."""
    context: int | None = None
    """Tokens of one conversation, once it was loaded."""
    failure: str = ""
    """Why it cannot be loaded."""

    @property
    def name(self) -> str:
        """Under which clients know it."""
        return self.served.name


class Catalog:
    """Models by name, in the order in which they were given."""

    def __init__(self, models: Sequence[Model]) -> None:
        """UsageError for two models of one name; what several have as another name is no name of any."""
        self.models = tuple(models)
        names = Counter(model.name for model in models)
        twice = [name for name, count in names.items() if count > 1]
        if twice:
            raise UsageError(f"{names[twice[0]]} models are named {twice[0]!r}", "give each a name with --alias A,B")
        others = Counter(alias for model in models for alias in model.served.aliases - {DEFAULT_NAME})
        self._by_name = {alias: model for model in models for alias in model.served.aliases if others[alias] == 1} | {
            model.name: model for model in models
        }

    def find(self, asked: object, usual: Model) -> Model:
        """The model that a request names; `usual` for one that names none. 404 when there is no such model.

        What is no text is left to whoever reads the request's fields.
        """
        if not isinstance(asked, str) or asked == DEFAULT_NAME:
            return usual
        found = self._by_name.get(asked)
        if found is None:
            have = ", ".join(repr(model.name) for model in self.models)
            verb = "is" if len(self.models) == 1 else "are"
            raise ApiError(404, f"model {asked[:100]!r} is not served, {have} {verb}", "model", "model_not_found")
        return found
