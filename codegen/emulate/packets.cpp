#include "codegen/emulate/packets.h"
#include "codegen/emulate/block.h"
#include "codegen/tile/cooperation.h"

namespace tessera::emu {

void Packets::check(Thread& t, const std::byte* packet) {
  block_.count_call(t);
  const auto* r = block_.launch().memory->find(packet);
  constexpr auto kBytes = static_cast<int64_t>(sizeof(uint32_t)) * tile::kPacketWords;
  if (!r || !r->written || packet + kBytes > r->begin + r->bytes || reinterpret_cast<uintptr_t>(packet) % kBytes != 0)
    block_.fail(t, "its packet is not 16 bytes of written memory, aligned to 16: " +
                       block_.launch().memory->describe(packet));
  block_.abort_if_failed(t);
}
void Packets::send(Thread& t, std::byte* packet, const uint32_t* payload) {
  check(t, packet);
  if (Status ok = block_.launch().cooperation->send(packet, payload); !ok.ok()) block_.fail(t, ok.error().message);
  block_.abort_if_failed(t);
}
// A warp may not wait for a packet that another warp receives, because that warp may clear it first.
Packets::Use& Packets::use_of(std::byte* packet) {
  Use& use = uses_[packet];
  if (use.barriers != block_.barriers) use = {block_.barriers, {}, {}};
  return use;
}
void Packets::await(Thread& t, std::byte* packet) {
  check(t, packet);
  Use& use = use_of(packet);
  use.waiter = t.index / kWarp;
  if (use.receiver && *use.receiver != *use.waiter) block_.fail(t, "it waits for a packet that another warp receives");
  block_.abort_if_failed(t);
  if (Status ok = block_.launch().cooperation->await(packet); !ok.ok()) block_.fail(t, ok.error().message);
  block_.abort_if_failed(t);
}
void Packets::receive(Thread& t, std::byte* packet, uint32_t* payload) {
  check(t, packet);
  Use& use = use_of(packet);
  use.receiver = t.index / kWarp;
  if (use.waiter && *use.waiter != *use.receiver) block_.fail(t, "it receives a packet for which another warp waits");
  block_.abort_if_failed(t);
  if (Status ok = block_.launch().cooperation->receive(packet, payload); !ok.ok()) block_.fail(t, ok.error().message);
  block_.abort_if_failed(t);
}

} // namespace tessera::emu
