// The threads that help others with their work: one set in the process, which grows to the most helpers that one call has
// wanted. A child of fork() has its own.
#pragma once
#include <functional>

namespace tessera {

// Runs body() here while up to `count` of the threads run help(1) to help(count), each once. Once body() is over,
// helpers that have not begun do not begin; returns when those that have are done. body() and help() do not throw: body()
// makes helpers end. No thread can be made: fewer help.
void with_helpers(int count, const std::function<void(int)>& help, const std::function<void()>& body);

} // namespace tessera
