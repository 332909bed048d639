"""The options of what is done with LoRA adapters."""

from brickwork.options import Options, option


class LoraBakeOptions(Options):
    """How an adapter goes into its base."""

    alpha: float = option(default=1.0, help="How much of the adapter is added.")


class LoraMergeOptions(Options):
    """How adapters become one."""

    weight: tuple[float, ...] = option(
        default=(), help="Weight of an adapter; once per adapter.", default_text="each the same, 1 in all"
    )
    rank: int | None = option(
        default=None,
        at_least=1,
        help="Rank of the result, the best of that rank.",
        default_text="all ranks together, which loses nothing",
    )


class LoraExtractOptions(Options):
    """Which part of a difference becomes an adapter."""

    rank: int = option(default=16, at_least=1, help="Rank of the adapter.")
    skip: tuple[str, ...] = option(
        default=("*embed*", "*wte*", "*wpe*", "*lm_head*"),
        metavar="PATTERN",
        help="Names of layers that get no adapter, as in '*embed*'; repeatable.",
    )
