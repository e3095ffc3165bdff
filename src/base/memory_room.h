// Room for threads where the memory of the process is limited (ulimit -v or -d, as batch systems set them).
#pragma once

#include <cstdint>
#include <string>

namespace trainer {

// Returns whether the address space or the data of this process have a limit.
bool has_memory_limit();

// Returns whether so many more threads find room: their stacks and what each allocates when it begins. Always
// true without a limit. A thread that finds none for its first thread-local variables cannot be told so: the
// C library ends the process, with its own words and code 127. So whoever starts a thread asks before.
bool is_room_for_threads(int64_t count);

// Throws OutOfMemoryError if there is no room for `count` threads of `what`.
void require_room_for_threads(int64_t count, const std::string& what);

// To be called at the start of the program. Under a limit, threads share one heap, because each new one would
// reserve 64 MB of address space; and if the C library aborts the process, which it does where it finds no
// memory and cannot say so, the process ends with exit code 5 and a message.
void prepare_for_memory_limit();

}  // namespace trainer
