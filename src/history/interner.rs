//! Values that come again and again, kept once and named by a number.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Numbers for values, in the order in which they came.
#[derive(Debug)]
pub(super) struct Interner<T> {
    values: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { values: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Interner<T> {
    /// The number of a value.
    pub(super) fn number(&mut self, value: T) -> u32 {
        if let Some(&number) = self.numbers.get(&value) {
            return number;
        }
        let number = u32::try_from(self.values.len()).expect("fewer than 2^32 values");
        self.values.push(value.clone());
        self.numbers.insert(value, number);
        number
    }

    /// The value of a number that was given here.
    pub(super) fn get(&self, number: u32) -> &T {
        &self.values[number as usize]
    }
}

impl Interner<Arc<str>> {
    /// The number of a text; makes no copy of one that is there.
    pub(super) fn number_of(&mut self, text: &str) -> u32 {
        let known: Option<&u32> = self.numbers.get(Borrow::<str>::borrow(text));
        match known {
            Some(&number) => number,
            None => self.number(text.into()),
        }
    }
}
