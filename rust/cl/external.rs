//! External queues and kernels: code outside this backend created them.

use opencl3::command_queue::{
    enqueue_nd_range_kernel, get_command_queue_info, retain_command_queue, CL_QUEUE_CONTEXT, CL_QUEUE_DEVICE,
    CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROPERTIES,
};
use opencl3::types::{cl_command_queue, cl_kernel};

use super::{check, trace, Context, Grid, Queue};
use crate::error::{Error, Result};

impl Queue {
    /// Shares a queue that other code created in the same context.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a queue of another context or device, and for one that is not in order.
    ///
    /// # Safety
    /// `handle` is a live `cl_command_queue`, or null.
    pub unsafe fn adopt(context: &Context, handle: usize) -> Result<Self> {
        let refuse = |reason: &str| Err(Error::Invalid(format!("OpenCL: the command queue {reason}")));
        if handle == 0 {
            return refuse("is null.");
        }
        let queue = handle as cl_command_queue;
        let ask = |what| check("clGetCommandQueueInfo", get_command_queue_info(queue, what));
        let is_ours = ask(CL_QUEUE_CONTEXT)?.to_ptr() as usize == context.native_handle();
        if !is_ours || ask(CL_QUEUE_DEVICE)?.to_ptr() as usize != context.device().native_handle() {
            return refuse(
                "belongs to another OpenCL context or device, and contexts share no memory. Make it in the context of \
                 torch.opencl.interop.context().",
            );
        }
        if ask(CL_QUEUE_PROPERTIES)?.to_ulong() & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0 {
            return refuse("is out of order. Streams are in order: create it without that property.");
        }
        // SAFETY: the caller's promise.
        check("clRetainCommandQueue", unsafe { retain_command_queue(queue) })?;
        let adopted = Self::of_handle(queue, context);
        // The code that created the queue enqueues commands too.
        adopted.native_handle()?;
        Ok(adopted)
    }

    /// Enqueues an external kernel, whose arguments the caller has set.
    ///
    /// # Safety
    /// `kernel` is a live `cl_kernel` of the queue's context, which no other thread uses during the call.
    pub unsafe fn launch_native(&self, kernel: usize, grid: &Grid<'_>) -> Result<()> {
        let called = trace::about_to_call();
        let Grid { first, global, local } = *grid;
        // SAFETY: the caller's promise; each slice has as many sizes as the dimension given.
        let launched = self.submit("clEnqueueNDRangeKernel", 0, || unsafe {
            enqueue_nd_range_kernel(
                self.handle,
                kernel as cl_kernel,
                global.len() as u32,
                first.map_or(std::ptr::null(), <[usize]>::as_ptr),
                global.as_ptr(),
                local.map_or(std::ptr::null(), <[usize]>::as_ptr),
                0,
                std::ptr::null(),
            )
        });
        launched.map(|event| {
            if let Some(called) = called {
                trace::note_launch(called, self.trace_id(), &event, "kernel of an extension", grid);
            }
        })
    }
}
