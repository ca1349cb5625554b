//! Tests that need a network, a control plane or a browser; see `tests/`.
