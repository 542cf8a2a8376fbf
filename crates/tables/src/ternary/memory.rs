//! Nodes and bucket arrays of tuple space search.
#![allow(unsafe_code)]

use abi::EntryHeader;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cmp::Reverse;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// An entry of a tuple. Its words follow in memory: the masked value and, in tables with ranges, the low and the high
/// ends.
#[repr(C)]
pub(super) struct Node {
    pub(super) next: AtomicPtr<Node>,
    pub(super) entry: AtomicPtr<EntryHeader>,
    pub(super) hash: u32,
    pub(super) seq: u64,
    pub(super) priority: i32,
    count: u32,
}

/// An unlinked node.
pub(super) struct Unlinked(*mut Node);

// SAFETY: the value owns the node.
unsafe impl Send for Unlinked {}

impl Unlinked {
    /// Size of the node in bytes.
    pub(super) fn bytes(&self) -> usize {
        // SAFETY: the value owns the node.
        Node::layout(unsafe { (*self.0).count } as usize).size()
    }

    /// Frees the node.
    ///
    /// # Safety
    /// No reader can see it any more.
    pub(super) unsafe fn free(self) {
        // SAFETY: the node was allocated with this layout and is freed once.
        unsafe { dealloc(self.0.cast(), Node::layout((*self.0).count as usize)) };
    }
}

impl Node {
    fn layout(words: usize) -> Layout {
        Layout::from_size_align(size_of::<Node>() + 8 * words, align_of::<Node>()).expect("a key is short")
    }

    pub(super) fn new(hash: u32, priority: i32, seq: u64, entry: *mut EntryHeader, words: &[u64]) -> *mut Node {
        let layout = Node::layout(words.len());
        let next = AtomicPtr::new(ptr::null_mut());
        let count = words.len() as u32;
        // SAFETY: the layout is not empty; node and words lie inside.
        unsafe {
            let node = alloc(layout).cast::<Node>();
            if node.is_null() {
                handle_alloc_error(layout);
            }
            node.write(Node { next, entry: AtomicPtr::new(entry), hash, seq, priority, count });
            ptr::copy_nonoverlapping(words.as_ptr(), node.add(1).cast(), words.len());
            node
        }
    }

    /// A copy that is not linked.
    ///
    /// # Safety
    /// `node` is alive.
    unsafe fn copy(node: *const Node) -> *mut Node {
        // SAFETY: the caller's promise.
        let (there, words) = unsafe { (&*node, Node::words(node)) };
        Node::new(there.hash, there.priority, there.seq, there.entry.load(Ordering::Relaxed), words)
    }

    /// The node, to be freed when no reader can see it; it must be unlinked.
    pub(super) fn unlinked(node: *mut Node) -> Unlinked {
        Unlinked(node)
    }

    /// Word `i` of an entry's words.
    ///
    /// # Safety
    /// `node` is alive and was made with more than `i` words.
    #[inline]
    pub(super) unsafe fn word(node: *const Node, i: usize) -> u64 {
        // SAFETY: the words follow the node in its allocation.
        unsafe { node.add(1).cast::<u64>().add(i).read() }
    }

    /// All words of an entry.
    ///
    /// # Safety
    /// `node` is alive while they are used.
    pub(super) unsafe fn words<'a>(node: *const Node) -> &'a [u64] {
        // SAFETY: the words follow the node in its allocation.
        unsafe { std::slice::from_raw_parts(node.add(1).cast(), (*node).count as usize) }
    }

    /// Its place in a chain.
    pub(super) fn place(&self) -> (Reverse<i32>, u64) {
        (Reverse(self.priority), self.seq)
    }

    /// Whether this node ranks before another one.
    #[inline]
    pub(super) fn beats(&self, other: &Node) -> bool {
        (self.priority, other.seq) > (other.priority, self.seq)
    }
}

/// The array of a tuple's buckets: heads of lists of nodes.
pub(super) struct Buckets {
    heads: Box<[AtomicPtr<Node>]>,
}

impl Buckets {
    /// Size of the array in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.heads)
    }

    /// An empty array, boxed; `len` is a power of two.
    pub(super) fn new(len: usize) -> *mut Buckets {
        let heads = (0..len).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Box::into_raw(Box::new(Buckets { heads }))
    }

    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    #[inline]
    pub(super) fn head(&self, hash: u32) -> &AtomicPtr<Node> {
        &self.heads[hash as usize & (self.heads.len() - 1)]
    }

    /// The heads of all chains.
    pub(super) fn heads(&self) -> impl Iterator<Item = &AtomicPtr<Node>> {
        self.heads.iter()
    }

    /// Calls `f` for each node.
    ///
    /// # Safety
    /// All linked nodes are alive.
    pub(super) unsafe fn nodes(&self, mut f: impl FnMut(*mut Node)) {
        for head in &self.heads {
            let mut node = head.load(Ordering::Relaxed);
            while !node.is_null() {
                // SAFETY: the caller's promise; the link is read before `f` gets the node.
                let next = unsafe { (*node).next.load(Ordering::Relaxed) };
                f(node);
                node = next;
            }
        }
    }

    /// A boxed array of twice the length with copies of all nodes; the nodes themselves are not moved since readers may
    /// follow their links.
    ///
    /// # Safety
    /// All linked nodes are alive.
    pub(super) unsafe fn doubled(&self) -> *mut Buckets {
        let new = Buckets::new(self.heads.len() * 2);
        // SAFETY: `new` is ours.
        let (low, high) = unsafe { (*new).heads.split_at(self.heads.len()) };
        for ((head, low), high) in self.heads.iter().zip(low).zip(high) {
            // Each chain becomes two, in the same order.
            let mut ends = [low, high];
            let mut node = head.load(Ordering::Relaxed);
            // SAFETY: the caller's promise.
            while let Some(there) = unsafe { node.as_ref() } {
                // SAFETY: the node is alive.
                let copy = unsafe { Node::copy(node) };
                let end = &mut ends[usize::from(there.hash as usize & self.heads.len() != 0)];
                end.store(copy, Ordering::Relaxed);
                // SAFETY: the copy is ours.
                *end = unsafe { &(*copy).next };
                node = there.next.load(Ordering::Relaxed);
            }
        }
        new
    }

    /// As [`Buckets::doubled`], a shorter array; `len` is a power of two.
    ///
    /// # Safety
    /// All linked nodes are alive.
    pub(super) unsafe fn shortened(&self, len: usize) -> *mut Buckets {
        let new = Buckets::new(len);
        let mut nodes: Vec<*mut Node> = Vec::new();
        for at in 0..len {
            // These chains become one, in the order of ranks.
            for head in self.heads.iter().skip(at).step_by(len) {
                let mut node = head.load(Ordering::Relaxed);
                // SAFETY: the caller's promise.
                while let Some(there) = unsafe { node.as_ref() } {
                    nodes.push(node);
                    node = there.next.load(Ordering::Relaxed);
                }
            }
            // SAFETY: the nodes are alive.
            nodes.sort_unstable_by_key(|node| unsafe { (**node).place() });
            // SAFETY: `new` is ours.
            let mut end = unsafe { &(*new).heads[at] };
            for node in nodes.drain(..) {
                // SAFETY: the node is alive.
                let copy = unsafe { Node::copy(node) };
                end.store(copy, Ordering::Relaxed);
                // SAFETY: the copy is ours.
                end = unsafe { &(*copy).next };
            }
        }
        new
    }
}
