// Requests that are used again and again, and completion queues: many requests from one thread.
#ifndef SHOAL_C_REQUEST_H_
#define SHOAL_C_REQUEST_H_

#include "shoal/c/client.h"

#ifdef __cplusplus
extern "C" {
#endif

/// One request to a model, which may be submitted again when it is complete. It keeps its inputs, so that only those that change
/// are set anew, and the memory that a request takes: in the long run, submitting it to a pool allocates nothing, if
/// nothing is copied.
///   Threads  thread-compatible. While it is under way, everything that would change it answers SHOAL_FAILED_PRECONDITION
typedef struct shoal_request shoal_request;

/// Makes a request.
///   request  owned; it keeps the model
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_request_create(const shoal_model* model, shoal_request** request);
/// Sets an input, by its name or its place in the model's order. A tensor of shoal_client_loan() is used where it lies, any other
/// one is copied when the request is submitted. The request holds the tensor: its handle may be freed.
///   Errors  SHOAL_NOT_FOUND: the model has no such input; SHOAL_INVALID_ARGUMENT: dtype or shape; expected and given are named
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_request_set_input(shoal_request* request, const char* name,
                                                               const shoal_tensor* tensor);
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_request_set_input_at(shoal_request* request, size_t index,
                                                                  const shoal_tensor* tensor);
/// Lets an output be written to `tensor`, each time that the request is submitted: where it lies if it is of
/// shoal_client_loan_output(); into other memory it is copied. Its shape must be that of the output, or the request ends with
/// SHOAL_INVALID_ARGUMENT.
///   Errors  as shoal_request_set_input()
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_request_set_output(shoal_request* request, const char* name,
                                                                const shoal_tensor* tensor);
/// These four are what shoal_submit_options has.
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_request_set_timeout(shoal_request* request, int64_t timeout_ns);
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_request_set_priority(shoal_request* request, int64_t priority);
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_request_set_flow(shoal_request* request, uint64_t flow);
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_request_set_version(shoal_request* request, uint64_t version);
/// The caller's own number for it; not sent.
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_request_set_id(shoal_request* request, uint64_t id);
SHOAL_API uint64_t shoal_request_id(const shoal_request* request);

SHOAL_API bool shoal_request_is_under_way(const shoal_request* request);
/// Of the last time it was submitted; SHOAL_FAILED_PRECONDITION if it never was, or is under way. Never NULL. Borrowed from the
/// request, until it is submitted again.
SHOAL_API const shoal_outcome* shoal_request_outcome(const shoal_request* request);
SHOAL_API void shoal_request_cancel(const shoal_request* request);  ///< best effort, from any thread; it still completes
/// Take a request from its queue before you free it. One that is under way is canceled, and its completion has no request.
SHOAL_API void shoal_request_free(shoal_request* request);

/// A request that is complete.
typedef struct shoal_completion {
  uint64_t tag;            ///< as given to shoal_queue_submit()
  shoal_request* request;  ///< the handle that was submitted; NULL if it was freed
} shoal_completion;

/// A completion queue: submits requests, and gives back those that are complete, in that order. A thread that waits in
/// shoal_queue_next() drives the connection itself: the library starts no thread.
///   Threads  thread-safe: several threads may submit and wait
typedef struct shoal_queue shoal_queue;

/// Makes an empty queue for requests to models of `client`.
///   queue  owned
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_queue_create(const shoal_client* client, shoal_queue** queue);
/// Sends the request and returns at once: never blocks, and does not wait for somebody to call shoal_queue_next(). Each request
/// that was submitted without an error comes back exactly once, whatever becomes of it: also if it was refused at once
/// (SHOAL_OVERLOADED).
///   Errors  SHOAL_FAILED_PRECONDITION: the request is under way, its model is of another client, or out of memory. Nothing is
///           submitted then
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_queue_submit(shoal_queue* queue, shoal_request* request, uint64_t tag);
/// Waits until a request is complete, or until the deadline, and takes as many as there are.
///   completions  room for `capacity` of them, at least 1
///   deadline_ns  a time of shoal_now_ns(), or SHOAL_FOREVER
///   count        how many were taken: 0 at the deadline, or when nothing is under way
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_queue_next(shoal_queue* queue, shoal_completion* completions, size_t capacity,
                                                        int64_t deadline_ns, size_t* count);
/// The same without waiting; receives if nothing is ready.
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_queue_poll(shoal_queue* queue, shoal_completion* completions, size_t capacity,
                                                        size_t* count);
/// A descriptor that is readable while there are completions, for epoll or an event loop. Level-triggered; nobody may read it,
/// and the queue closes it. The first call starts the library's thread. In a program that calls shoal_client_poll_once() there is
/// none, and the descriptor becomes readable only within its calls.
///   Errors  SHOAL_UNAVAILABLE: no thread can be started; SHOAL_FAILED_PRECONDITION: no descriptor is left
SHOAL_API SHOAL_MUST_USE shoal_status* shoal_queue_fd(shoal_queue* queue, int* fd);
SHOAL_API size_t shoal_queue_under_way(const shoal_queue* queue);  ///< requests that were submitted and not taken
SHOAL_API void shoal_queue_free(shoal_queue* queue);  ///< ends its requests as SHOAL_CANCELLED; they stay the caller's

#ifdef __cplusplus
}
#endif

#endif  // SHOAL_C_REQUEST_H_
