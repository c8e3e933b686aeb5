//! Stores the last orders of the gateway in the node's folder: a node that starts while the gateway is
//! unavailable follows them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use secrets::file;
use serde::{Deserialize, Serialize};
use subjects::{NodeId, Timestamp, node::NodeOrders};

const FILE: &str = "orders.json";

#[derive(Debug, thiserror::Error)]
#[error("{}", .0.display())]
pub(crate) struct Error(PathBuf, #[source] io::Error);

/// The stored part of orders. A duplicate id is not stored: it concerns one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// A folder may be given to another node.
    node: NodeId,
    cordoned: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    drain_by: Option<Timestamp>,
}

/// Keeps the orders of one node.
#[derive(Debug)]
pub(crate) struct OrderFile {
    path: PathBuf,
    node: NodeId,
    /// The content of the file, if known.
    kept: Option<Kept>,
}

impl OrderFile {
    pub(crate) fn new(data: &Path, node: NodeId) -> Self {
        Self { path: data.join(FILE), node, kept: None }
    }

    /// Returns the orders that an earlier process of this node was given. `None` if there was none.
    pub(crate) fn read(&mut self) -> Result<Option<NodeOrders>, Error> {
        let text = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| Error(self.path.clone(), error))?,
        };
        let kept: Kept =
            serde_json::from_slice(&text).map_err(|error| Error(self.path.clone(), error.into()))?;
        if kept.node != self.node {
            return Ok(None);
        }
        let Kept { cordoned, drain_by, .. } = kept.clone();
        self.kept = Some(kept);
        Ok(Some(NodeOrders { cordoned, drain_by, ..NodeOrders::default() }))
    }

    /// Keeps orders, unless they are kept already. The file has these or those before, whatever happens.
    pub(crate) fn keep(&mut self, orders: &NodeOrders) -> Result<(), Error> {
        let NodeOrders { cordoned, drain_by, .. } = orders.clone();
        let kept = Kept { node: self.node.clone(), cordoned, drain_by };
        if self.kept.as_ref() == Some(&kept) {
            return Ok(());
        }
        let written = file::stage(&self.path, &subjects::encode_json_text(&kept))
            .and_then(|()| file::promote(&self.path));
        written.map_err(|error| Error(self.path.clone(), error))?;
        self.kept = Some(kept);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(cordoned: bool, drain_by: Option<Timestamp>) -> NodeOrders {
        NodeOrders { cordoned, drain_by, ..NodeOrders::default() }
    }

    #[test]
    fn kept_orders_are_those_of_the_same_node_and_are_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let open = |node: &str| OrderFile::new(folder.path(), node.parse().unwrap());
        let mut file = open("n1");
        assert_eq!(file.read().unwrap(), None);
        let drained = orders(true, Some(Timestamp::now()));
        file.keep(&NodeOrders { duplicate: true, ..drained.clone() }).unwrap();
        assert_eq!(open("n1").read().unwrap(), Some(drained));
        assert_eq!(open("n2").read().unwrap(), None);
        file.keep(&orders(false, None)).unwrap();
        assert_eq!(open("n1").read().unwrap(), Some(orders(false, None)));
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(open("n1").read().unwrap_err().to_string().ends_with(FILE));
        // The gateway's word replaces what cannot be read.
        open("n1").keep(&orders(true, None)).unwrap();
        assert_eq!(open("n1").read().unwrap(), Some(orders(true, None)));
    }
}
