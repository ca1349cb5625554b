//! How fast the world turns.
