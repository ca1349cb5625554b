//! Small worlds, computed by hand.
