//! Jobs in real sandboxes: what they can do, what they cannot, and that the host is unchanged.

mod attempts;
mod crash;
mod files;
mod isolation;
mod kernel;
mod kit;
mod life;
mod limits;
mod network;
mod oci;
mod unprivileged;
