"""What a page may ask for: every field bounded, nothing beside them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

#: a name or a path: one line, not longer than a page shows
Text = Annotated[str, Field(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")]
Classes = Annotated[list[Text], Field(min_length=1, max_length=2000)]
Method = Literal["match", "rebasin", "linear"]
Weight = Annotated[float, Field(ge=-10, le=10, allow_inf_nan=False)]
SCORED = 600  # images that score channels: a person is waiting


class Asked(BaseModel):
    """A body of JSON."""

    model_config = ConfigDict(extra="forbid")


class PartRequest(Asked):
    """Some classes of one network, and images of them."""

    model: Text
    classes: Classes
    data: Text


class CurveRequest(PartRequest):
    """A part over its budget."""

    large: bool = False  # asked for by a person, who waits: images may be many, or have to be fetched


class Wanted(PartRequest):
    """A part, and how much of the network it may be."""

    budget: float = Field(0.25, gt=0, le=1, allow_inf_nan=False)
    polish: float = Field(0, ge=0, le=30, allow_inf_nan=False)  # minutes

    def options(self) -> dict[str, Any]:
        """Those of `disassemble`."""
        if self.budget == 1:
            return {"keep": 1.0, "repair": "none"}
        return {"budget": self.budget, "scored": SCORED} | ({"polish": self.polish} if self.polish else {})


class BuildRequest(Asked):
    """What is on the board."""

    parts: list[Wanted] = Field(min_length=1, max_length=8)
    name: Text
    judge: Text = ""  # a data set to judge by; empty: the parts' own


class MapRequest(Asked):
    """Two networks whose weighted sums are measured, and images to measure them on."""

    models: list[Text] = Field(min_length=2, max_length=2)
    data: list[Text] = Field(min_length=2, max_length=2)


class MergeRequest(Asked):
    """Networks of one architecture that become one."""

    models: list[Text] = Field(min_length=2, max_length=4)
    data: list[Text] = Field(min_length=2, max_length=4)  # of each network
    method: Method = "match"
    weights: list[Weight] | None = Field(default=None, max_length=4)  # of `linear`
    name: Text


class AddRequest(Asked):
    """A network, images of classes it does not know, and images of those it knows."""

    model: Text
    data: Text
    base: Text
    name: Text


class ForgetRequest(PartRequest):
    """A network, classes it is to forget, and images of all it knows."""

    name: Text


class MergeDraft(Asked):
    """The form of Merge, which may not be filled in yet."""

    models: list[Text] = Field(default=["", ""], max_length=4)
    data: list[Text] = Field(default=["", ""], max_length=4)
    method: Text = "match"
    weights: list[Weight] | None = Field(default=None, max_length=4)
    name: Text = "merged"


class AddDraft(Asked):
    """The form of Add, likewise."""

    model: Text = ""
    data: Text = ""
    base: Text = ""
    name: Text = "grown"


class ForgetDraft(Asked):
    """The form of Forget, likewise."""

    model: Text = ""
    classes: list[Text] = Field(default=[], max_length=2000)
    data: Text = ""
    name: Text = "without"


class Board(Asked):
    """What is not built yet, so that a page that is opened again finds it."""

    parts: list[Wanted] = Field(default=[], max_length=8)
    name: Text = "mine"
    judge: Text = ""
    verb: Text = "join"
    merge: MergeDraft = MergeDraft()
    add: AddDraft = AddDraft()
    forget: ForgetDraft = ForgetDraft()


class Export(Asked):
    """A network, and what it is written as."""

    model: Text
    to: Text = "onnx"


class Rename(Asked):
    """A network, and its new name."""

    model: Text
    to: Text


class Delete(Asked):
    """A network to put aside."""

    model: Text


class Undelete(Asked):
    """What to bring back."""

    number: int = Field(ge=0, lt=1 << 31)


class Import(Asked):
    """What a file of weights does not say."""

    name: Text
    arch: Text = Field(min_length=1)
    kind: Literal["safetensors", "pth"] = "safetensors"
    classes: Text = ""  # with commas
    mean: Text = ""
    std: Text = ""
    size: int = Field(0, ge=0, le=4096)
