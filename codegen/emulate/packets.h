// Packets of partial results between cooperative blocks, as the threads of a block use them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace tessera::emu {

class Block;
struct Thread;

class Packets {
public:
  explicit Packets(Block& block) : block_(block) {}
  void send(Thread& t, std::byte* packet, const uint32_t* payload);
  void await(Thread& t, std::byte* packet);
  void receive(Thread& t, std::byte* packet, uint32_t* payload);

private:
  struct Use { // of a packet, since the block's barrier with this index
    int64_t barriers = 0;
    std::optional<int> waiter, receiver; // warps
  };
  void check(Thread& t, const std::byte* packet);
  [[nodiscard]] Use& use_of(std::byte* packet);

  Block& block_;
  std::map<std::byte*, Use> uses_;
};

} // namespace tessera::emu
