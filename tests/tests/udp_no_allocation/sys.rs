//! An allocator that counts, per thread.
//!
//! Promises: counts every allocation and reallocation of the thread that asks. Does not do: counting what is given back.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// How often the calling thread has allocated.
pub(crate) fn allocations() -> u64 {
    COUNT.with(Cell::get)
}

pub(crate) struct Counting;

fn count() {
    // A cell of an integer without destructor: reaching it allocates nothing, and it is there until the thread ends.
    COUNT.with(|count| count.set(count.get() + 1));
}

// SAFETY:
// - every call is passed on to the system's allocator with what came in; counting touches no memory that it manages.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY:
        // - the caller's promises about `layout` are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY:
        // - `pointer` came from `alloc` or `realloc` above, that is from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY:
        // - `pointer` came from the system's allocator with this layout; the caller promises that `size` is allowed.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
