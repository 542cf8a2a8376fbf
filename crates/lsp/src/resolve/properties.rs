//! The standard properties of tables.

/// Properties of tables: name, syntax, description (P4_16, section "Tables"; v1model; PSA).
pub const PROPERTIES: [(&str, &str, &str); 19] = [
    ("key", "key = { expression: match_kind; ... }", "What is looked up, and how each part is matched."),
    ("actions", "actions = { action; ... }", "The actions that entries and the default action can run."),
    (
        "entries",
        "entries = { keyset: action; ... }",
        "Entries that the table begins with; with `const`, all it ever has.",
    ),
    ("default_action", "default_action = action(arguments);", "What runs where no entry matches."),
    ("size", "size = entries;", "How many entries the table holds at most."),
    (
        "largest_priority_wins",
        "largest_priority_wins = bool;",
        "Whether of entries that match the one with the largest priority runs.",
    ),
    ("priority_delta", "priority_delta = number;", "How much the priorities of entries without one differ."),
    ("counters", "counters = direct_counter;", "Counts what each entry matches (v1model)."),
    ("meters", "meters = direct_meter;", "Meters what each entry matches (v1model)."),
    (
        "implementation",
        "implementation = action_profile | action_selector;",
        "Where actions of entries are kept, to be shared or chosen by hash (v1model).",
    ),
    (
        "support_timeout",
        "support_timeout = bool;",
        "Whether controllers hear of entries that match nothing for a while (v1model).",
    ),
    ("add_on_miss", "add_on_miss = bool;", "Whether the default action may add an entry for the packet's key (PNA)."),
    (
        "pna_idle_timeout",
        "pna_idle_timeout = PNA_IdleTimeout_t.NOTIFY_CONTROL | PNA_IdleTimeout_t.AUTO_DELETE;",
        "What becomes of entries that match nothing for a while (PNA).",
    ),
    (
        "idle_timeout_with_auto_delete",
        "idle_timeout_with_auto_delete = bool;",
        "Whether entries end by themselves (PNA 0.5).",
    ),
    ("psa_direct_counter", "psa_direct_counter = DirectCounter;", "Counts where an action calls it (PSA)."),
    ("psa_direct_meter", "psa_direct_meter = DirectMeter;", "Meters where an action calls it (PSA)."),
    (
        "psa_implementation",
        "psa_implementation = ActionProfile | ActionSelector;",
        "Where actions of entries are kept, to be shared or chosen by hash (PSA).",
    ),
    (
        "psa_empty_group_action",
        "psa_empty_group_action = action;",
        "What runs where an entry names a group without members (PSA).",
    ),
    (
        "psa_idle_timeout",
        "psa_idle_timeout = PSA_IdleTimeout_t.NOTIFY_CONTROL;",
        "Whether controllers hear of entries that match nothing for a while (PSA).",
    ),
];
