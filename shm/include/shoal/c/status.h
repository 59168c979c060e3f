// Status: how a function of the C interface ended. Programs include shoal/shoal.h or shoal/shoal_engine.h, which include this.
//
// Rules of the whole interface (C11 and C++):
//   Errors    A function that can fail returns a shoal_status*: NULL is success, anything else is the caller's to free. What it
//             would have given is then NULL or 0. No exception leaves a function. NULL and numbers out of range are
//             SHOAL_INVALID_ARGUMENT, and the message names the argument. Functions that return something else answer 0, false,
//             NULL or "" for NULL. A handle that was freed cannot be recognized: do not use it
//   Handles   Pointers to types that only the library knows. Each has one function that frees it, to which NULL is allowed.
//             "Owned" means that the caller frees it; "borrowed" that something else keeps it, and until when
//   Structs   Begin with `struct_size`, and are initialized by their macro: `shoal_usage usage = SHOAL_USAGE_INIT;`. So a library
//             may be newer than the program. In options, 0 and NULL mean the default. Structs without `struct_size` never change
//   Text      UTF-8, ended by 0. What a function returns as const char* is never NULL, and belongs to the handle that was asked
//   Time      Nanoseconds. A timeout is from now; a deadline is a time of shoal_now_ns()
//   Threads   Every function may be called by any thread. Two threads may use one handle at the same time if it is
//             "thread-safe"; one that is "thread-compatible" only for functions that take it as const. Freeing a handle is never
//             safe beside another use of it. A thread that waits here must not be ended by pthread_cancel()
//   Fork      In a forked child, handles of the parent answer SHOAL_FAILED_PRECONDITION. Connect or load again there
#ifndef SHOAL_C_STATUS_H_
#define SHOAL_C_STATUS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SHOAL_API __attribute__((visibility("default")))
// An ignored status is a leak and a hidden failure. shoal_status_free(f(...)) ignores it on purpose.
#define SHOAL_MUST_USE __attribute__((warn_unused_result))
#else
#define SHOAL_API
#define SHOAL_MUST_USE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/// The kind of an error, which tells the caller what to do (docs/errors.md). The numbers never change.
typedef int32_t shoal_code;
enum {
  SHOAL_OK = 0,
  SHOAL_INVALID_ARGUMENT = 1,     ///< the request or a file's content is wrong; sending it again does not help
  SHOAL_NOT_FOUND = 2,            ///< no such file, model, input or output
  SHOAL_DEADLINE_EXCEEDED = 3,    ///< the timeout is over
  SHOAL_OVERLOADED = 4,           ///< the queue is full; try again later or elsewhere
  SHOAL_POISON = 5,               ///< this request crashed its worker twice; do not send it again
  SHOAL_CANCELLED = 6,            ///< the caller canceled it
  SHOAL_UNAVAILABLE = 7,          ///< no daemon, it does not answer, or it is shutting down; try again later
  SHOAL_FAILED_PRECONDITION = 8,  ///< the system is in the wrong state for this call; also: out of memory
  SHOAL_UNIMPLEMENTED = 9,        ///< an operator, attribute or format that Shoal does not have
  SHOAL_DATA_LOSS = 10,           ///< a file is damaged
  SHOAL_ABORTED = 11,             ///< every attempt ended with the death of its worker
  SHOAL_PERMISSION_DENIED = 12,   ///< the operating system or the daemon refused
  SHOAL_INTERNAL = 13             ///< a bug in Shoal or an accelerator
};

/// Its name: "INVALID_ARGUMENT"; "UNKNOWN" for other numbers. Lives as long as the program.
SHOAL_API const char* shoal_code_name(shoal_code code);

/// A failure. NULL is success, in all functions that take one.
///   Threads  immutable
typedef struct shoal_status shoal_status;

SHOAL_API shoal_code shoal_status_code(const shoal_status* status);  ///< SHOAL_OK for NULL
/// Names the operation, its subject and the cause; "" for NULL.
SHOAL_API const char* shoal_status_message(const shoal_status* status);
/// With SHOAL_OVERLOADED: when to try again; 0 = not known.
SHOAL_API int64_t shoal_status_retry_after_ns(const shoal_status* status);
SHOAL_API void shoal_status_free(shoal_status* status);

/// No deadline, no timeout.
#define SHOAL_FOREVER INT64_MAX
/// CLOCK_MONOTONIC, in nanoseconds.
SHOAL_API int64_t shoal_now_ns(void);

/// Frees text that a function gave as an owned char*.
SHOAL_API void shoal_string_free(char* text);

#ifdef __cplusplus
}
#endif

#endif  // SHOAL_C_STATUS_H_
