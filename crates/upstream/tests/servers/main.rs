//! Upstreams against real servers: over HTTP, and as processes.

mod breaking; // servers that fail, and being left alone
mod calling; // both eras, both transports: results, progress, errors
mod direct; // byte for byte, where rmcp's client is not between
mod http; // what is particular to HTTP
mod limits; // time, size, concurrency
mod listing; // tools as they were written, and that they changed
mod process; // what is particular to processes
mod support; // what the tests share
