//! The queues that a node takes jobs from: one for each class that it serves, and its own.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use subjects::{NodeId, PoolName, Subject, job::Class, job::Engine};

/// A queue of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Class(Class),
    /// Jobs that are for this node alone.
    Own(NodeId),
}

impl Queue {
    pub(crate) fn subject(&self) -> Subject {
        match self {
            Self::Class(class) => Subject::ClassJobs(class.clone()),
            Self::Own(node) => Subject::NodeJobs(node.clone()),
        }
    }
}

/// How many other nodes of the pool take jobs, as the gateway last said.
#[derive(Clone, Debug, Default)]
pub(crate) struct OtherNodes(Arc<AtomicU32>);

impl OtherNodes {
    pub(crate) fn set(&self, count: u32) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// Returns whether another node can take jobs of this queue.
    pub(crate) fn share(&self, queue: &Queue) -> bool {
        matches!(queue, Queue::Class(_)) && self.0.load(Ordering::Relaxed) > 0
    }
}

/// The label in logs and metrics: a class, or `own`. Never an id.
impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class(class) => write!(f, "{class}"),
            Self::Own(_) => f.write_str("own"),
        }
    }
}

/// Returns the queues of a node with these engines and images.
pub(crate) fn queues(node: &NodeId, pool: &PoolName, engines: &[Engine], images: &[String]) -> Vec<Queue> {
    let mut queues = vec![Queue::Own(node.clone())];
    for engine in engines {
        if engine.runs_without_image() {
            queues.push(Queue::Class(Class::new(pool.clone(), *engine)));
        }
        let with_image = images.iter().filter_map(|image| Class::with_image(pool.clone(), *engine, image));
        queues.extend(with_image.map(Queue::Class));
    }
    queues
}
