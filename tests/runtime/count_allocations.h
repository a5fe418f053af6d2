// Counts operator new in this program: linking this file's source replaces it.
#pragma once

namespace tessera::test {
[[nodiscard]] long allocations(); // since the program began, on all threads
}
