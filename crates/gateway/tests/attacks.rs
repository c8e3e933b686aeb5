//! The attacks that a gateway for tools has to survive, one test each, numbered as in the list that they come from.

mod attacks {
    mod addresses; // what is fetched, and where servers are
    pub(crate) mod behind; // a server behind us that does what a test wants
    mod hints; // what a server says about its own tools
    mod identity; // who is calling
    mod ids; // ids that do not belong together
    mod limits; // too much, too deep, too slow, too often
    mod protocol; // what is being asked
    mod rights; // agents that widen their own
    mod servers; // those behind us
    mod strangers; // callers without a token
}
