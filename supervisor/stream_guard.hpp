// What libzmq does to the connections of strangers, without a stranger deciding how long it takes.
#pragma once

#include <memory>

#include "supervisor/process/closer.hpp"

namespace shoal::supervisor {

/// A stranger may send descriptors along with its bytes. libzmq knows nothing of them: the kernel closes what recv() does not
/// take, and what is unread when the connection is closed, in libzmq's thread, which everybody shares. And for such a close() the
/// stranger decides how long it takes (Closer).
///
/// So shoald has a connect(), a recv() and a close() of its own, which libzmq finds before those of libc. connect() has urgent
/// bytes read in line, because of others the kernel closes the descriptors, and notes the connection for unread_connections().
/// After this call, recv() takes descriptors, gives them to the Closer, and reports the end of the connection: no honest peer
/// sends any. While too many of that user wait to be closed, it takes none, and only reports the end. close() of a local stream
/// in which something waits goes to the Closer, too, unless it is called by this thread, or by the Closer.
///
/// Called once, by the thread that runs the daemon. The Closer lives as long as the process. A build with ThreadSanitizer, which
/// has functions of its own, does not have it.
///   Threads  thread-bound
void guard_streams(std::shared_ptr<Closer> closer);

}  // namespace shoal::supervisor
