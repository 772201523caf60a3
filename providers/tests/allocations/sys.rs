//! An allocator that counts the calls of the current thread.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Initialised in a constant and without a destructor, so that counting doesn't allocate.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread has allocated or grown something.
pub(crate) fn calls() -> u64 {
    CALLS.get()
}

pub(crate) struct Counting;

// SAFETY:
// - every call is passed on to the system's allocator unchanged, whose contract is the same;
// - counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY:
        // - the layout is the caller's, who keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY:
        // - the pointer came from `System` with this layout, by the caller's contract and the methods beside this one.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY:
        // - as `dealloc`; the size is the caller's, who keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
