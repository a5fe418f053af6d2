// Micro-kernels of a GPU's calibration, as PTX, because tile kernels cannot express the number of accesses in flight,
// dependent loads, single barriers and single instruction classes.
#include "measure/calibrate/calibrate.h"

namespace tessera {
namespace {

std::string num(int n) { return std::to_string(n); }

// "{%q0, %q1, %q2, %q3}", from register number `first` on.
std::string quad(int first, const std::string& prefix = "%q") {
  std::string text = "{";
  for (int i = 0; i < 4; ++i) text += (i > 0 ? ", " : "") + prefix + num(first + i);
  return text + "}";
}

// A kernel around `body`. %a, %b, %m, %n: parameters; %thread: thread index in the grid; %me: in the block.
std::string entry(const std::string& name, const std::string& body) {
  return ".visible .entry " + name +
         "(.param .u64 pa, .param .u64 pb, .param .u64 pm, .param .u64 pn)\n"
         ".maxntid 1024, 1, 1\n{\n"
         ".reg .pred %p, %done; .reg .b64 %a, %b, %m, %n, %at, %step, %t0, %t1; .reg .b32 %thread, %me, %threads, %x, "
         "%y, %one;\n"
         ".reg .b32 %q<64>; .reg .f32 %f<32>; .reg .b16 %h<32>;\n"
         "ld.param.u64 %a, [pa]; ld.param.u64 %b, [pb]; ld.param.u64 %m, [pm]; ld.param.u64 %n, [pn];\n"
         "cvta.to.global.u64 %a, %a; cvta.to.global.u64 %b, %b;\n"
         "mov.u32 %me, %tid.x; mov.u32 %threads, %ntid.x; mov.u32 %x, %ctaid.x; mad.lo.u32 %thread, %x, %threads, "
         "%me;\n"
         "mov.u32 %x, %nctaid.x; mul.lo.u32 %threads, %threads, %x;\n" +
         body + "ret;\n}\n";
}

// `body` m times.
std::string loop(const std::string& body) {
  return "LOOP:\n" + body +
         "sub.u64 %m, %m, 1; setp.ne.u64 %p, %m, 0;\n"
         "@%p bra LOOP;\n";
}

// Stores %q[0 .. registers) if they have a value that never occurs, so that the loads are not removed.
std::string use(int registers) {
  std::string text = "mov.u32 %x, %q0;\n";
  for (int i = 1; i < registers; ++i) text += "xor.b32 %x, %x, %q" + num(i) + ";\n";
  return text + "setp.eq.u32 %p, %x, 0x5bd1e995; @%p st.global.u32 [%b+64], %x;\n";
}

// Copies 16 bytes at a time, `unroll` loads in flight before their stores. Adjacent threads access adjacent 16
// bytes.
std::string copy(int unroll) {
  std::string body = "mul.wide.u32 %at, %thread, 16; add.u64 %a, %a, %at; add.u64 %b, %b, %at; mul.wide.u32 %step, "
                     "%threads, 16;\n",
              loads, stores;
  for (int u = 0; u < unroll; ++u) {
    loads += "ld.global.v4.u32 " + quad(4 * u) + ", [%a]; add.u64 %a, %a, %step;\n";
    stores += "st.global.v4.u32 [%b], " + quad(4 * u) + "; add.u64 %b, %b, %step;\n";
  }
  return entry("copy_" + num(unroll), body + loop(loads + stores));
}

// Repeatedly reads the n bytes at a (a power of two) through L2; each block starts at a different offset.
std::string read_l2() {
  std::string body = "mul.wide.u32 %at, %thread, 16; mul.wide.u32 %step, %threads, 16; sub.u64 %n, %n, 1;\n", loads;
  for (int i = 0; i < 16; ++i) body += "mov.u32 %q" + num(i) + ", 0;\n";
  for (int u = 0; u < 4; ++u) {
    loads += "and.b64 %at, %at, %n; add.u64 %t0, %a, %at; add.u64 %at, %at, %step;\n"
             "ld.global.cg.v4.u32 " +
             quad(16 + 4 * u) + ", [%t0];\n";
  }
  for (int i = 0; i < 16; ++i) loads += "xor.b32 %q" + num(i) + ", %q" + num(i) + ", %q" + num(16 + i) + ";\n";
  return entry("read_l2", body + loop(loads) + use(16));
}

// Eight loads of 16 bytes, or of 4, of a thread from shared memory, without bank conflicts.
std::string read_shared(const std::string& name, bool wide) {
  std::string body = ".shared .align 16 .b8 tile[16384];\n"
                     "mov.u32 %y, tile; shl.b32 %x, %me, " +
                     std::string(wide ? "4" : "2") + "; and.b32 %x, %x, 16383; add.u32 %y, %y, %x;\n",
              loads;
  for (int u = 0; u < 8; ++u)
    loads += wide ? "ld.volatile.shared.v4.u32 " + quad(4 * u) + ", [%y];\n"
                  : "ld.volatile.shared.u32 %q" + num(u) + ", [%y];\n";
  return entry(name, body + loop(loads));
}

// Writes a cyclic chain of n addresses at a, `b` bytes (the parameter) apart.
std::string link() {
  return entry("link", "cvt.u64.u32 %at, %thread; setp.ge.u64 %done, %at, %n; @%done bra END;\n"
                       "ld.param.u64 %step, [pb]; mad.lo.u64 %t0, %at, %step, %a; add.u64 %at, %at, 1;\n"
                       "setp.eq.u64 %p, %at, %n; @%p mov.u64 %at, 0; mad.lo.u64 %t1, %at, %step, %a;\n"
                       "st.global.u64 [%t0], %t1;\nEND:\n");
}

// Pointer chasing: each load depends on the previous one. `how`: ".global.cg" bypasses L1, or ".global.ca".
std::string chase(const std::string& name, const std::string& how) {
  return entry(name, "mov.u64 %at, %a;\n" + loop("ld" + how + ".u64 %at, [%at];\n") + "st.global.u64 [%b], %at;\n");
}

std::string chase_shared() {
  return entry("chase_shared", ".shared .align 8 .b32 ring[2];\n"
                               "mov.u32 %y, ring; st.shared.u32 [%y], %y; bar.sync 0;\n" +
                                   loop("ld.volatile.shared.u32 %y, [%y];\n") + "st.global.u32 [%b], %y;\n");
}

// A block reduction: within each warp by shuffles, then over the warps' sums in shared memory.
std::string exchange() {
  const std::string shuffles = [] {
    std::string text;
    for (int d = 16; d >= 1; d /= 2) text += "shfl.sync.bfly.b32 %x, %y, " + num(d) + ", 31, -1; add.u32 %y, %y, %x;\n";
    return text;
  }();
  return entry("exchange",
               ".shared .align 4 .b32 sums[32];\n"
               "mov.u32 %q0, sums; shr.u32 %q1, %me, 5; shl.b32 %q1, %q1, 2; add.u32 %q1, %q0, %q1;\n"
               "and.b32 %q2, %me, 31; shl.b32 %q3, %q2, 2; add.u32 %q3, %q0, %q3;\n"
               "mov.u32 %q4, %ntid.x; shr.u32 %q4, %q4, 5; setp.lt.u32 %done, %q2, %q4; mov.u32 %y, %me;\n" +
                   loop(shuffles +
                        "st.shared.u32 [%q1], %y; bar.sync 0;\n"
                        "mov.u32 %y, 0; @%done ld.shared.u32 %y, [%q3];\n" +
                        shuffles + "bar.sync 0;\n") +
                   "mov.u32 %q0, %y;\n" + use(1));
}

// A grid barrier with a counter at a, 0 before the launch.
std::string grid_barrier() {
  return entry("grid_barrier",
               "mov.u32 %q0, %nctaid.x; mov.u32 %q1, 0; setp.ne.u32 %done, %me, 0; mov.u32 %one, 1;\n" +
                   loop("add.u32 %q1, %q1, %q0; bar.sync 0;\n"
                        "@%done bra WAITED;\nred.release.gpu.global.add.u32 [%a], %one;\n"
                        "SPIN:\nld.acquire.gpu.global.u32 %x, [%a]; setp.lt.u32 %p, %x, %q1; @%p bra SPIN;\n"
                        "WAITED:\nbar.sync 0;\n"));
}

// Instructions of one class in independent dependency chains; the cycles of block 0 are stored to b.
std::string rate(const std::string& name, const std::string& start, const std::string& body, const std::string& end) {
  return entry("rate_" + name, start + "bar.sync 0; mov.u64 %t0, %clock64;\n" + loop(body) +
                                   "bar.sync 0; mov.u64 %t1, %clock64; sub.u64 %t1, %t1, %t0;\n"
                                   "setp.eq.u32 %p, %thread, 0; @%p st.global.u64 [%b], %t1;\n" +
                                   end);
}

constexpr int kChains = 8;

std::string each(int repeat, int chains, const std::function<std::string(const std::string&)>& text) {
  std::string out;
  for (int r = 0; r < repeat; ++r)
    for (int i = 0; i < chains; ++i) out += text(num(i)) + "\n";
  return out;
}

std::string scalar_rates() {
  const std::string ints =
      each(1, kChains, [](const std::string& i) { return "add.u32 %q" + i + ", %me, " + i + ";"; }) +
      "mov.u32 %y, %thread;\n";
  const std::string floats =
      each(1, kChains,
           [](const std::string& i) { return "add.u32 %x, %me, " + i + "; cvt.rn.f32.u32 %f" + i + ", %x;"; }) +
      "cvt.rn.f32.u32 %f30, %thread; cvt.rn.f32.u32 %f31, %me;\n";
  const std::string used =
      each(1, kChains, [](const std::string& i) { return "mov.b32 %q" + i + ", %f" + i + ";"; }) + use(kChains);
  std::string text = rate(
      "fma", floats,
      each(16, kChains, [](const std::string& i) { return "fma.rn.f32 %f" + i + ", %f" + i + ", %f30, %f31;"; }), used);
  // Two alternating operations, which no three-operand instruction combines.
  text += rate("integer", ints,
               each(8, kChains,
                    [](const std::string& i) {
                      return "add.u32 %q" + i + ", %q" + i + ", %y; xor.b32 %q" + i + ", %q" + i + ", %me;";
                    }),
               use(kChains));
  text +=
      rate("special", floats,
           each(8, kChains, [](const std::string& i) { return "ex2.approx.ftz.f32 %f" + i + ", %f" + i + ";"; }), used);
  text += rate("conversion", floats,
               each(8, kChains,
                    [](const std::string& i) {
                      return "cvt.rn.f16.f32 %h" + i + ", %f" + i + "; cvt.f32.f16 %f" + i + ", %h" + i + ";";
                    }),
               used);
  text += rate(
      "shuffle", ints,
      each(8, kChains, [](const std::string& i) { return "shfl.sync.bfly.b32 %q" + i + ", %q" + i + ", 1, 31, -1;"; }),
      use(kChains));
  return text;
}

// Four m16n8 accumulators, each a dependency chain.
std::string tensor_rate(const std::string& name, const std::string& instruction, bool integers) {
  const std::string prefix = integers ? "%q" : "%f";
  std::string start, body, end;
  for (int i = 0; i < 16; ++i) start += "mov.b32 " + prefix + num(i) + (integers ? ", 0;\n" : ", 0f00000000;\n");
  for (int i = 32; i < 38; ++i) start += "add.u32 %q" + num(i) + ", %me, " + num(i) + ";\n";
  for (int r = 0; r < 8; ++r)
    for (int c = 0; c < 16; c += 4)
      body += "mma.sync.aligned." + instruction + " " + quad(c, prefix) + ", " + quad(32) + ", {%q36, %q37}, " +
              quad(c, prefix) + ";\n";
  if (!integers)
    for (int i = 0; i < 16; ++i) end += "mov.b32 %q" + num(i) + ", %f" + num(i) + ";\n";
  return rate(name, start, body, end + use(16));
}

} // namespace

std::string calibration_ptx() {
  return ".version 7.0\n.target sm_80\n.address_size 64\n" + entry("empty", "") + copy(1) + copy(2) + copy(4) +
         read_l2() + read_shared("read_shared", true) + read_shared("load_shared", false) + link() +
         chase("chase_l2", ".global.cg") + chase("chase_l1", ".global.ca") + chase_shared() +
         entry("barrier", loop("bar.sync 0;\n")) + exchange() + grid_barrier() + scalar_rates() +
         tensor_rate("tensor_f16", "m16n8k16.row.col.f32.f16.f16.f32", false) +
         tensor_rate("tensor_tf32", "m16n8k8.row.col.f32.tf32.tf32.f32", false) +
         tensor_rate("tensor_i8", "m16n8k32.row.col.s32.s8.s8.s32", true);
}

} // namespace tessera
