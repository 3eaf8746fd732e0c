from ctx.api import Project as Project
from ctx.api import open_project as open
from ctx.errors import CtxError as CtxError

__version__: str
__all__ = ["CtxError", "Project", "__version__", "open"]
