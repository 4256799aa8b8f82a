"""What the tests of the Scala project Ariadne check, item by item, and the test here that does.

The items are those of its suite, in its order. Where it checks a mistake, the test named here has
the right behaviour: a full outer join returns all rows, a query never misses a file that is not
indexed. There are no locks here; tests that concurrent work loses nothing stand in their place.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ITEMS = {
    # Construction and metadata
    1: "test_index.test_a_new_index_needs_a_schema_and_an_old_one_only_its_name",
    2: "test_index.test_the_same_is_fine_and_another_format_or_schema_is_not",
    3: "test_index.test_another_schema_is_accepted_only_if_index_columns_mean_the_same",
    4: "test_index.test_a_schema_can_be_sparks_or_arrows",
    5: "test_index.test_opening_never_rewrites_metadata",
    6: "test_index.test_settings_survive_a_reconnect",
    7: "test_metadata.test_every_version_loads",
    8: "test_metadata.test_damage_is_named",
    9: "test_metadata.test_what_is_written_says_its_versions",
    10: "test_index.test_a_newer_version_fails_everything_with_a_word",
    11: "test_metadata.test_an_older_version_becomes_ours_when_it_is_written",
    12: "test_index.test_names_that_are_no_folders_are_refused "
        "test_index.test_other_names_are_fine",
    # Declaring columns
    14: "test_declarations.test_a_name_has_one_kind_of_index "
        "test_declarations.test_declaring_again_is_nothing_new",
    15: "test_declarations.test_what_cannot_be_declared_is_refused "
        "test_declarations.test_what_can_be_declared_is_accepted",
    16: "test_declarations.test_what_cannot_be_declared_is_refused",
    17: "test_declarations.test_what_cannot_be_declared_is_refused "
        "test_index.test_a_refused_declaration_leaves_nothing_behind "
        "test_joins.test_a_time_can_be_nested",
    18: "test_declarations.test_what_cannot_be_declared_is_refused",
    19: "test_joins.test_an_alias_multiplies_rows_only_where_it_is_asked_for",
    20: "test_joins.test_an_array_and_its_elements_are_joined",
    21: "test_joins.test_columns_with_names_that_are_used_inside",
    # Files
    22: "test_index.test_files_are_registered_once_whatever_their_spelling",
    23: "test_index.test_files_are_registered_once_whatever_their_spelling",
    24: "test_index.test_no_files_or_bad_ones_are_refused",
    25: "test_update.test_folders_and_patterns_are_followed",
    26: "test_index.test_other_names_are_fine",
    27: "test_update.test_many_values_are_rows_of_a_large_table "
        "test_update.test_no_large_tables_by_default "
        "test_index.test_an_empty_index_can_be_asked_and_kept",
    # Update
    28: "test_update.test_an_update_indexes_what_is_new_and_then_has_nothing_to_do",
    29: "test_update.test_an_update_indexes_what_is_new_and_then_has_nothing_to_do",
    30: "test_update.test_every_kind_is_filled_in_later",
    31: "test_update.test_new_columns_are_filled_in_without_reading_what_is_known",
    32: "test_update.test_every_kind_is_filled_in_later",
    33: "test_scale.test_files_on_both_sides_of_the_limit_are_all_found",
    34: "test_update.test_an_update_indexes_what_is_new_and_then_has_nothing_to_do",
    35: "test_update.test_many_values_are_rows_of_a_large_table "
        "test_update.test_no_large_tables_by_default",
    36: "test_update.test_many_values_are_rows_of_a_large_table",
    37: "test_update.test_many_values_are_rows_of_a_large_table",
    38: "test_scale.test_keys_among_many_values_of_two_columns_give_their_rows",
    39: "test_staging.test_the_newest_batch_wins_and_nothing_is_left_over",
    40: "test_update.test_tables_of_the_scala_project_are_read_and_rebuilt",
    41: "test_update.test_an_update_indexes_what_is_new_and_then_has_nothing_to_do "
        "test_update.test_tables_of_the_scala_project_are_read_and_rebuilt",
    # Lookup
    42: "test_lookup.test_columns_are_combined_with_and test_lookup.test_files_that_hold_values",
    43: "test_lookup.test_files_that_hold_values",
    44: "test_lookup.test_columns_are_combined_with_and",
    45: "test_update.test_ranges_come_from_footers_and_no_row_is_read "
        "test_lookup.test_files_that_hold_values",
    46: "test_lookup.test_files_that_hold_values "
        "test_lookup.test_a_temporal_value_is_where_it_is_newest_even_without_a_time",
    47: "test_bloom.test_what_is_in_is_found",
    48: "test_update.test_junk_where_a_table_should_be_is_left_alone_and_nothing_is_known",
    # Join
    49: "test_joins.test_every_join_is_sparks_join_on_either_side",
    50: "test_joins.test_every_join_is_sparks_join_on_either_side",
    51: "test_joins.test_every_join_is_sparks_join_on_either_side",
    52: "test_joins.test_the_schema_is_the_same_whether_or_not_a_file_matched",
    53: "test_index.test_selecting_columns_gives_another_view "
        "test_joins.test_the_schema_is_the_same_whether_or_not_a_file_matched",
    54: "test_joins.test_bad_joins_are_refused_with_all_that_is_wrong",
    55: "test_joins.test_computed_columns_join_and_are_in_the_result",
    56: "test_joins.test_an_alias_multiplies_rows_only_where_it_is_asked_for "
        "test_any_index.test_joins_are_sparks_joins",
    57: "test_joins.test_temporal_joins_give_the_newest_row",
    58: "test_joins.test_temporal_joins_give_the_newest_row test_joins.test_a_time_can_be_nested",
    59: "test_joins.test_two_temporal_columns_want_the_newest_row_of_both",
    60: "test_joins.test_rows_can_be_shuffled_before_a_join "
        "test_update.test_shuffling_gives_the_same",
    # Catalog, SQL, maintenance, locks
    61: "test_index.test_the_catalog_knows_indexes_and_nothing_else",
    62: "test_index.test_the_catalog_knows_indexes_and_nothing_else",
    63: "test_index.test_the_catalog_knows_indexes_and_nothing_else",
    64: "test_sql.test_conditions_leave_files_out_and_rows_are_right "
        "test_sql.test_tables_are_listed_and_described test_sql.test_names_that_are_no_table",
    65: "test_sql.test_joins_are_right_and_send_their_keys",
    66: "test_sql.test_a_temporal_index_shows_the_newest_rows",
    67: "test_update.test_many_values_are_rows_of_a_large_table "
        "test_update.test_batches_are_merged_every_so_many "
        "test_index.test_an_empty_index_can_be_asked_and_kept",
    68: "test_update.test_two_updates_at_once_lose_nothing "
        "test_metadata.test_no_change_of_racing_writers_is_lost "
        "test_index.test_keys_that_mean_nothing_are_refused",
    69: "test_update.test_tables_of_the_scala_project_are_read_and_rebuilt",
}  # fmt: skip


def test_no_item_is_left_out():
    # 13 is a function that cleans file names, which nothing uses.
    assert sorted(ITEMS) == [number for number in range(1, 70) if number != 13]


@pytest.mark.parametrize("number", ITEMS)
def test_every_item_has_a_test(number):
    for name in ITEMS[number].split():
        module, _, test = name.partition(".")
        (path,) = Path(__file__).parent.rglob(f"{module}.py")
        tree = ast.parse(path.read_text())
        assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
