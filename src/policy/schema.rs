//! The schema of both kinds: one table, which the walk reads.
//!
//! A field that the table does not name does not exist; what it names is checked for type, range
//! and unit in one pass over the document. Defaults live with the types in `manifest`, rules that
//! concern more than one field in `rules`.
//!
//! Worked number: `forecast.percentile` is a whole number from 50 to 99, so 99.9 and 100 are both
//! refused, each for its own reason.

/// What may stand in a place.
pub(super) enum Shape {
    /// A map with these fields and no others.
    Map(&'static [Field]),
    /// A map whose field `type` says which other fields may or must stand beside it.
    Union { fields: &'static [Field], default: &'static str, ties: &'static [Tie] },
    /// A list whose items are told apart by this field.
    Keyed { key: &'static str, of: &'static Shape, least: usize },
    /// A list of plain values, each at most once.
    Set(&'static Shape),
    /// Text to text.
    Labels,
    /// Whatever the cluster wrote there.
    Anything,
    /// A name as Kubernetes takes it: lower case letters, digits, `-` and `.`.
    Name,
    /// Any text but the empty one.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A whole number from the first to the last, both included.
    Whole(i64, i64),
    /// A target: a duration, to the microsecond.
    Target,
    /// A window: a duration in whole milliseconds.
    Window,
    /// A window, or this word.
    WindowOr(&'static str),
    /// Dollars in a text.
    Money,
    /// Tokens in a text.
    Count,
    /// Five fields of cron.
    Cron,
    /// A name of the IANA time zone database.
    Zone,
    /// `signal=metric{label="value"}`.
    MetricSpec,
}

/// One field of a map.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) required: bool,
}

/// A field of a union that belongs to one of its types.
pub(super) struct Tie {
    pub(super) field: &'static str,
    pub(super) with: &'static str,
    pub(super) required: bool,
}

const fn must(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, required: true }
}

const fn may(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, required: false }
}

/// The API group and version of both kinds.
pub const API_VERSION: &str = "spillgate.dev/v1alpha1";
/// The kind of a policy.
pub const AUTOSCALER: &str = "InferenceAutoscaler";
/// The kind of a shared pool of devices.
pub const GPU_POOL: &str = "GPUPool";
/// The kind of a profile file.
pub const PROFILE: &str = "Profile";

/// Signals that an engine of type `Custom` may be taught, as the left side of a metric spec.
pub const SIGNALS: [&str; 8] = [
    "num_requests_waiting",
    "num_requests_running",
    "kv_cache_usage",
    "prompt_tokens",
    "computed_tokens",
    "generation_tokens",
    "requests_finished",
    "requests_preempted",
];

/// Most replicas that a pool may have: far above any fleet, far below any overflow.
const MOST: i64 = 100_000;

const METADATA: Shape = Shape::Map(&[
    must("name", Shape::Name),
    may("namespace", Shape::Name),
    may("labels", Shape::Labels),
    may("annotations", Shape::Labels),
    // What `kubectl get -o yaml` adds.
    may("creationTimestamp", Shape::Anything),
    may("deletionTimestamp", Shape::Anything),
    may("deletionGracePeriodSeconds", Shape::Anything),
    may("finalizers", Shape::Anything),
    may("generation", Shape::Anything),
    may("managedFields", Shape::Anything),
    may("ownerReferences", Shape::Anything),
    may("resourceVersion", Shape::Anything),
    may("selfLink", Shape::Anything),
    may("uid", Shape::Anything),
]);

/// A `GPUPool`.
pub(super) const GPU_POOL_SHAPE: Shape = Shape::Map(&[
    must("apiVersion", Shape::Choice(&[API_VERSION])),
    must("kind", Shape::Choice(&[GPU_POOL])),
    must("metadata", METADATA),
    must(
        "spec",
        Shape::Map(&[
            may("resourceName", Shape::Text),
            may("deviceClassName", Shape::Name),
            may("nodeSelector", Shape::Labels),
            may("supply", SUPPLY),
            must("maxDevices", Shape::Whole(1, 1_000_000)),
            may("costPerDeviceHour", Shape::Money),
        ]),
    ),
    may("status", Shape::Anything),
]);

const SUPPLY: Shape = Shape::Union {
    fields: &[
        may("type", Shape::Choice(&["Fixed", "Elastic"])),
        may("provisionTimeout", Shape::Window),
        may("maxPendingReplicas", Shape::Whole(1, MOST)),
    ],
    default: "Fixed",
    ties: &[
        Tie { field: "provisionTimeout", with: "Elastic", required: false },
        Tie { field: "maxPendingReplicas", with: "Elastic", required: true },
    ],
};

/// An `InferenceAutoscaler`.
pub(super) const AUTOSCALER_SHAPE: Shape = Shape::Map(&[
    must("apiVersion", Shape::Choice(&[API_VERSION])),
    must("kind", Shape::Choice(&[AUTOSCALER])),
    must("metadata", METADATA),
    must(
        "spec",
        Shape::Map(&[
            may("mode", Shape::Choice(&["Shadow", "Active", "Paused"])),
            may("priority", Shape::Whole(-1_000_000, 1_000_000)),
            may("tick", Shape::Window),
            must("objectives", OBJECTIVES),
            must("pools", Shape::Keyed { key: "name", of: &POOL, least: 1 }),
            may("scaleDown", SCALE_DOWN),
            may("forecast", Shape::Map(&[may("percentile", Shape::Whole(50, 99))])),
            may("schedules", Shape::Keyed { key: "name", of: &SCHEDULE, least: 0 }),
            may("overflow", OVERFLOW),
        ]),
    ),
    may("status", Shape::Anything),
]);

const OBJECTIVES: Shape = Shape::Map(&[
    may("attainmentPercent", Shape::Whole(50, 99)),
    may(
        "ttft",
        Shape::Map(&[must("target", Shape::Target), may("perThousandInputTokens", Shape::Target)]),
    ),
    may(
        "itl",
        Shape::Map(&[
            must("target", Shape::Target),
            may("statistic", Shape::Choice(&["RequestMean"])),
        ]),
    ),
    may("e2e", Shape::Map(&[must("target", Shape::Target)])),
]);

const POOL: Shape = Shape::Map(&[
    must("name", Shape::Name),
    may("role", Shape::Choice(&["Prefill", "Decode", "Mixed", "Pooling"])),
    must(
        "scaleTargetRef",
        Shape::Map(&[
            may("apiVersion", Shape::Text),
            must("kind", Shape::Text),
            must("name", Shape::Name),
        ]),
    ),
    may("gpuPoolRef", Shape::Map(&[must("name", Shape::Name)])),
    may("minReplicas", Shape::Whole(0, MOST)),
    may("maxReplicas", Shape::Whole(0, MOST)),
    must(
        "profileRef",
        Shape::Map(&[
            may("kind", Shape::Choice(&["BuiltIn", "ConfigMap"])),
            must("name", Shape::Name),
        ]),
    ),
    may("engine", ENGINE),
    may(
        "startup",
        Shape::Map(&[may("initialEstimate", Shape::Window), may("timeout", Shape::Window)]),
    ),
]);

const ENGINE: Shape = Shape::Map(&[
    may("type", Shape::Choice(&["VLLM", "SGLang", "TensorRTLLM", "Custom"])),
    may("enginesPerPod", Shape::Whole(1, 1_024)),
    may(
        "metrics",
        Shape::Map(&[
            may("port", Shape::Whole(1, 65_535)),
            may("path", Shape::Text),
            may("specs", Shape::Set(&Shape::MetricSpec)),
        ]),
    ),
]);

const SCALE_DOWN: Shape = Shape::Map(&[
    may("stabilizationWindow", Shape::Window),
    may("interval", Shape::WindowOr("Auto")),
    may("drainTimeout", Shape::Window),
]);

const SCHEDULE: Shape = Shape::Map(&[
    must("name", Shape::Name),
    must("schedule", Shape::Cron),
    must("duration", Shape::Window),
    may("timeZone", Shape::Zone),
    must("minReplicas", Shape::Keyed { key: "pool", of: &FLOOR, least: 1 }),
]);

const FLOOR: Shape =
    Shape::Map(&[must("pool", Shape::Name), must("replicas", Shape::Whole(0, MOST))]);

const OVERFLOW: Shape = Shape::Map(&[
    may("policy", Shape::Choice(&["Never", "Allowed"])),
    may("openOn", Shape::Set(&Shape::Choice(&["Exhausted", "AtMax", "Unavailable", "Starting"]))),
    may("openAfter", Shape::Window),
    may("closeAfter", Shape::Window),
    may("onControllerLoss", Shape::Choice(&["Keep", "Close"])),
    may(
        "limits",
        Shape::Map(&[may("costPerHour", Shape::Money), may("tokensPerMinute", Shape::Count)]),
    ),
    may("destinations", Shape::Keyed { key: "name", of: &DESTINATION, least: 0 }),
    may("router", ROUTER),
]);

const DESTINATION: Shape = Shape::Union {
    fields: &[
        must("name", Shape::Name),
        may("type", Shape::Choice(&["External"])),
        may(
            "external",
            Shape::Map(&[
                may("inputPerMillionTokens", Shape::Money),
                may("outputPerMillionTokens", Shape::Money),
            ]),
        ),
    ],
    default: "External",
    ties: &[Tie { field: "external", with: "External", required: false }],
};

const ROUTER: Shape = Shape::Union {
    fields: &[
        may("type", Shape::Choice(&["HTTPRoute"])),
        may(
            "httpRoute",
            Shape::Map(&[
                must("name", Shape::Name),
                may("namespace", Shape::Name),
                may("ruleName", Shape::Name),
            ]),
        ),
    ],
    default: "HTTPRoute",
    ties: &[Tie { field: "httpRoute", with: "HTTPRoute", required: true }],
};
