"""Every `spark.indextables.*` key: its name, type, default and meaning, in one registry.

A key is a constant of this package and is read with it, so that its type is known::

    >>> config = Config({"spark.indextables.checkpoint.interval": "20"})
    >>> config[CHECKPOINT_INTERVAL]
    20

Values come in layers, the first one that has the key wins: options of one read or write, session
configuration, table properties, the default. Names are case-insensitive, and
`spark.tantivy4spark.*` is an old spelling of `spark.indextables.*`. A key that is not in the
registry is an error, because accepting it would promise an effect. `docs/configuration.md` is
generated from here.

To add a key, write it into the module of its concern, and a test of its effect. Nothing else has
to name it: what those modules define is imported here, and `registry` finds it there.
"""

from __future__ import annotations

from indextables.config.ariadne import *  # noqa: F403
from indextables.config.key import ARIADNE_PREFIX as ARIADNE_PREFIX
from indextables.config.key import OLD_PREFIX as OLD_PREFIX
from indextables.config.key import PREFIX as PREFIX
from indextables.config.key import Key as Key
from indextables.config.key import KeyFamily as KeyFamily
from indextables.config.layers import Config as Config
from indextables.config.layers import is_own_key as is_own_key
from indextables.config.layers import known_keys as known_keys
from indextables.config.log import *  # noqa: F403
from indextables.config.maintenance import *  # noqa: F403
from indextables.config.registry import FAMILIES as FAMILIES
from indextables.config.registry import KEYS as KEYS
from indextables.config.spark import *  # noqa: F403
from indextables.config.splits import *  # noqa: F403
from indextables.config.values import parse_boolean as parse_boolean
from indextables.config.values import parse_duration_ms as parse_duration_ms
from indextables.config.values import parse_size as parse_size
from indextables.config.xref import *  # noqa: F403
