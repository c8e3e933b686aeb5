//! Vectors by column: for each dimension, the components of all documents lie side by side.
//!
//! A query has a component in about a hundred of the dimensions, so that a search reads a twentieth of what
//! the vectors take, in order.

use crate::embed::DIMENSIONS;

/// Documents of one block, which is allocated at once.
const ROWS: usize = 256;
pub(crate) const BLOCK_BYTES: usize = ROWS * DIMENSIONS;

/// The vectors of documents, by the number of the document.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    /// Each has for each dimension `ROWS` components.
    blocks: Vec<Box<[i8]>>,
    /// 0 where there is no vector.
    lengths: Vec<f64>,
}

impl Columns {
    /// Stores the components of a document that had none.
    pub(crate) fn set(&mut self, number: usize, components: impl Iterator<Item = (usize, i8)>) {
        while self.lengths.len() <= number {
            self.blocks.push(vec![0; BLOCK_BYTES].into_boxed_slice());
            self.lengths.resize(self.blocks.len() * ROWS, 0.0);
        }
        let Some(block) = self.blocks.get_mut(number / ROWS) else { return };
        let mut squares = 0;
        for (dimension, component) in components {
            squares += i32::from(component).pow(2);
            let place = block.get_mut(dimension * ROWS + number % ROWS);
            place.into_iter().for_each(|place| *place = component);
        }
        self.lengths.get_mut(number).into_iter().for_each(|length| *length = f64::from(squares).sqrt());
    }

    pub(crate) fn clear(&mut self, number: usize) {
        let block = self.blocks.get_mut(number / ROWS);
        let components = block.into_iter().flat_map(|block| block.iter_mut().skip(number % ROWS));
        components.step_by(ROWS).for_each(|component| *component = 0);
        self.lengths.get_mut(number).into_iter().for_each(|length| *length = 0.0);
    }

    /// Returns the cosine between each document and a query, by number; 0 where there is no direction.
    pub(crate) fn cosines(&self, query: &[(usize, i8)]) -> Vec<f64> {
        let squares: i32 = query.iter().map(|(_, component)| i32::from(*component).pow(2)).sum();
        let query_length = f64::from(squares).sqrt();
        let mut cosines = Vec::with_capacity(self.lengths.len());
        for (block, lengths) in self.blocks.iter().zip(self.lengths.chunks(ROWS)) {
            let mut products = [0_i32; ROWS];
            for (dimension, weight) in query {
                let column = block.chunks_exact(ROWS).nth(*dimension).unwrap_or_default();
                for (product, component) in products.iter_mut().zip(column) {
                    // Products fit into 16 bits, which processors multiply faster.
                    *product += i32::from(i16::from(*component) * i16::from(*weight));
                }
            }
            cosines.extend(products.iter().zip(lengths).map(|(product, length)| {
                let lengths = length * query_length;
                if lengths > 0.0 { f64::from(*product) / lengths } else { 0.0 }
            }));
        }
        cosines
    }

    pub(crate) fn bytes(&self) -> usize {
        let of_block = BLOCK_BYTES + size_of::<Box<[i8]>>() * 2;
        self.blocks.len() * of_block + self.lengths.capacity() * size_of::<f64>()
    }
}
