// The ELF format: System V ABI, chapters 4 and 5; its supplement for x86-64 has the relocations.
#include "runtime/host_code.h"
#include "base/text.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <optional>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>

namespace tessera {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 30; // of a mapping: distances within it fit into 32 bits
constexpr size_t kMaxName = 4096;             // bytes of a symbol's name
constexpr size_t kJumpBytes = 8;              // jmp *[rip + distance], 6 bytes, and padding

// Thrown and caught in this file only.
struct Failed {
  Diagnostic error;
};

// An address that code may call by name: of libmvec and libm whatever they have, of the C library and the compiler's own
// library what compilers call by themselves.
void* library_function(const std::string& name) {
  static void* const vector_math = dlopen("libmvec.so.1", RTLD_NOW | RTLD_LOCAL);
  static void* const math = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
  static void* const compiler = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);
  static constexpr std::array<std::string_view, 9> kOfCompilers = {
      "memcpy", "memmove", "memset", "memcmp",
      // conversions of f16 and bf16 where the machine has no instructions for them
      "__extendhfsf2", "__truncsfhf2", "__truncdfhf2", "__truncsfbf2", "__truncdfbf2"};
  for (void* library : {vector_math, math})
    if (void* address = library ? dlsym(library, name.c_str()) : nullptr) return address;
  if (std::find(kOfCompilers.begin(), kOfCompilers.end(), name) == kOfCompilers.end()) return nullptr;
  if (void* address = dlsym(RTLD_DEFAULT, name.c_str())) return address;
  return compiler ? dlsym(compiler, name.c_str()) : nullptr;
}

// One object: its headers, each checked before it is used.
class Object {
public:
  Object(const HostObject& object) : symbol_(object.symbol), bytes_(object.bytes) {
    const auto header = read<Elf64_Ehdr>(0, "a header");
    const bool expected = std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
                          header.e_ident[EI_DATA] == ELFDATA2LSB && header.e_type == ET_REL &&
                          header.e_machine == EM_X86_64;
    if (!expected) wrong("it is not an object of ELF for x86-64");
    if (header.e_shentsize != sizeof(Elf64_Shdr)) wrong("its table of sections has entries of another size");
    for (size_t i = 0; i < header.e_shnum; ++i)
      sections.push_back(read<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr), "a section's header"));
    for (size_t i = 0; i < sections.size(); ++i) {
      const Elf64_Shdr& s = sections[i];
      if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL) (void)part(s.sh_offset, s.sh_size, "a section");
      if (s.sh_type != SHT_SYMTAB) continue;
      if (symbols_) wrong("it has two tables of symbols");
      symbols_ = i;
      if (s.sh_link >= sections.size() || sections[s.sh_link].sh_type != SHT_STRTAB) wrong("its symbols have no names");
    }
  }

  // The part of a section's memory that comes from the file.
  [[nodiscard]] std::span<const char> contents(const Elf64_Shdr& s) const {
    return s.sh_type == SHT_NOBITS ? std::span<const char>() : part(s.sh_offset, s.sh_size, "a section");
  }
  [[nodiscard]] Elf64_Sym symbol(size_t index) const {
    if (!symbols_ || index >= symbol_count())
      wrong("it refers to symbol " + std::to_string(index) + ", which it lacks");
    return read<Elf64_Sym>(sections[*symbols_].sh_offset + index * sizeof(Elf64_Sym), "a symbol");
  }
  [[nodiscard]] size_t symbol_count() const { return symbols_ ? sections[*symbols_].sh_size / sizeof(Elf64_Sym) : 0; }
  [[nodiscard]] std::string name(const Elf64_Sym& symbol) const {
    const auto names = contents(sections[sections[*symbols_].sh_link]);
    const char* begin = names.data() + std::min<size_t>(symbol.st_name, names.size());
    const size_t room = std::min(names.size() - static_cast<size_t>(begin - names.data()), kMaxName);
    const void* end = room > 0 ? std::memchr(begin, 0, room) : nullptr;
    if (end == nullptr) wrong("the name of a symbol does not end");
    return {begin, static_cast<const char*>(end)};
  }
  // Calls f(section, relocation) for what `applies` says is relocated.
  template <class Applies, class F>
  void each_relocation(const Applies& applies, const F& f) const {
    for (const Elf64_Shdr& s : sections) {
      if ((s.sh_type != SHT_RELA && s.sh_type != SHT_REL) || !applies(s.sh_info)) continue;
      if (s.sh_type == SHT_REL) wrong("it has relocations without addends");
      for (size_t at = 0; at + sizeof(Elf64_Rela) <= s.sh_size; at += sizeof(Elf64_Rela))
        f(s.sh_info, read<Elf64_Rela>(s.sh_offset + at, "a relocation"));
    }
  }
  [[noreturn]] void wrong(const std::string& what, ErrorCode code = ErrorCode::CorruptFile) const {
    throw Failed{Diagnostic(code, "the machine code of kernel " + quote(symbol_) + " cannot be loaded: " + what)};
  }

  std::vector<Elf64_Shdr> sections;

private:
  [[nodiscard]] std::span<const char> part(uint64_t at, uint64_t bytes, const char* what) const {
    if (at > bytes_.size() || bytes > bytes_.size() - at)
      wrong(std::string(what) + " lies outside of its " + std::to_string(bytes_.size()) + " bytes");
    return bytes_.subspan(at, bytes);
  }
  template <class T>
  [[nodiscard]] T read(uint64_t at, const char* what) const {
    T value;
    std::memcpy(&value, part(at, sizeof value, what).data(), sizeof value);
    return value;
  }

  const std::string& symbol_;
  std::span<const char> bytes_;
  std::optional<size_t> symbols_; // the section
};

} // namespace

// Loading in three steps: every section gets a place, the mapping is made and filled, places that refer to others are
// corrected.
class HostLinker {
public:
  HostLinker(std::span<const HostObject> objects, std::span<const HostSymbol> symbols) : given_(symbols) {
    objects_.reserve(objects.size());
    for (const HostObject& o : objects) objects_.emplace_back(o);
    for (size_t i = 0; i < objects.size(); ++i) wanted_.push_back(objects[i].symbol);
  }

  std::shared_ptr<const HostCode> run() {
    for (Object& o : objects_) place(o);
    for (const Object& o : objects_) find_imports(o);
    map();
    for (size_t i = 0; i < objects_.size(); ++i) {
      fill(i);
      code_->functions_.emplace(wanted_[i], function(i));
    }
    write_jumps();
    protect();
    return code_;
  }

private:
  enum Part : uint8_t { Code, ReadOnly, Variables };
  struct Place {
    Part part = Code;
    size_t offset = 0, bytes = 0;
    bool placed = false;
  };

  size_t reserve(Part part, size_t bytes, size_t alignment, const Object& object) {
    const size_t at = (sizes_[part] + alignment - 1) / alignment * alignment;
    if (bytes > kMaxBytes || at > kMaxBytes - bytes) object.wrong("it has more than 1 GiB");
    sizes_[part] = at + bytes;
    return at;
  }

  void place(const Object& o) {
    auto& places = places_.emplace_back(o.sections.size());
    for (size_t i = 0; i < o.sections.size(); ++i) {
      const Elf64_Shdr& s = o.sections[i];
      if ((s.sh_flags & SHF_ALLOC) == 0 || s.sh_type == SHT_NOTE) continue;
      const bool plain = s.sh_type == SHT_PROGBITS || s.sh_type == SHT_NOBITS || s.sh_type == SHT_X86_64_UNWIND;
      if (!plain || (s.sh_flags & SHF_TLS) != 0)
        o.wrong("section " + std::to_string(i) + " is of a kind that is not loaded");
      const auto alignment = std::max<uint64_t>(s.sh_addralign, 1);
      if (!std::has_single_bit(alignment) || alignment > 4096)
        o.wrong("section " + std::to_string(i) + " is aligned to " + std::to_string(alignment) + " bytes");
      const bool executable = (s.sh_flags & SHF_EXECINSTR) != 0, writable = (s.sh_flags & SHF_WRITE) != 0;
      if (executable && writable) o.wrong("it has code that changes itself");
      Place& p = places[i];
      p = {executable ? Code : writable ? Variables : ReadOnly, 0, s.sh_size, true};
      p.offset = reserve(p.part, s.sh_size, alignment, o);
    }
  }

  void find_imports(const Object& o) {
    for (size_t i = 1; i < o.symbol_count(); ++i) {
      const Elf64_Sym s = o.symbol(i);
      if (s.st_shndx != SHN_UNDEF) continue;
      std::string name = o.name(s);
      if (imports_.contains(name)) continue;
      void* address = nullptr;
      for (const HostSymbol& given : given_)
        if (given.name == name) address = const_cast<void*>(given.address);
      if (address == nullptr) address = library_function(name);
      if (address == nullptr)
        o.wrong("it calls " + quote(name) + ", which the mathematical libraries of this system lack",
                ErrorCode::UnsupportedFeature);
      Import import{address, reserve(Code, kJumpBytes, kJumpBytes, o),
                    reserve(ReadOnly, sizeof(void*), sizeof(void*), o)};
      imports_.emplace(std::move(name), import);
    }
  }

  void map() {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_t total = 0;
    for (size_t part = 0; part < sizes_.size(); ++part) {
      starts_[part] = total;
      total += (sizes_[part] + page - 1) / page * page;
    }
    code_ = std::shared_ptr<HostCode>(new HostCode());
    if (total == 0) return;
    void* memory = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      throw Failed{Diagnostic(ErrorCode::OutOfMemory, "no memory for " + std::to_string(total) +
                                                          " bytes of machine code: " + system_error_text())};
    code_->memory_ = static_cast<std::byte*>(memory);
    code_->bytes_ = total;
  }

  [[nodiscard]] std::byte* at(Part part, size_t offset) const { return code_->memory_ + starts_[part] + offset; }
  [[nodiscard]] std::byte* at(const Place& p) const { return at(p.part, p.offset); }

  void fill(size_t object) {
    const Object& o = objects_[object];
    for (size_t i = 0; i < o.sections.size(); ++i) {
      const Place& p = places_[object][i];
      if (!p.placed) continue;
      const auto contents = o.contents(o.sections[i]);
      if (!contents.empty()) std::memcpy(at(p), contents.data(), contents.size());
    }
    const auto& places = places_[object];
    o.each_relocation([&](size_t section) { return section < places.size() && places[section].placed; },
                      [&](size_t section, const Elf64_Rela& r) { relocate(object, places[section], r); });
  }

  // S + A - P of the ABI: the distance from the corrected place to what is referred to.
  void relocate(size_t object, const Place& p, const Elf64_Rela& r) {
    const Object& o = objects_[object];
    const auto kind = ELF64_R_TYPE(r.r_info);
    if (kind != R_X86_64_PC32 && kind != R_X86_64_PLT32)
      o.wrong("it has relocations of kind " + std::to_string(kind) + ", which its compiler does not emit");
    if (r.r_offset > p.bytes || p.bytes - r.r_offset < sizeof(int32_t))
      o.wrong("a relocation lies outside of its section");
    std::byte* where = at(p) + r.r_offset;
    const auto target = reinterpret_cast<uintptr_t>(referred(object, o.symbol(ELF64_R_SYM(r.r_info)), kind));
    const auto distance =
        static_cast<int64_t>(target + static_cast<uint64_t>(r.r_addend) - reinterpret_cast<uintptr_t>(where));
    const auto stored = static_cast<int32_t>(distance);
    if (stored != distance) o.wrong("a relocation refers to what is more than 2 GiB away");
    std::memcpy(where, &stored, sizeof stored);
  }

  [[nodiscard]] std::byte* referred(size_t object, const Elf64_Sym& s, uint64_t kind) const {
    const Object& o = objects_[object];
    if (s.st_shndx == SHN_UNDEF) {
      const auto import = imports_.find(o.name(s));
      if (import == imports_.end() || kind != R_X86_64_PLT32) o.wrong("it refers to data outside of it");
      return at(Code, import->second.jump);
    }
    if (s.st_shndx >= places_[object].size() || !places_[object][s.st_shndx].placed)
      o.wrong("it refers to a section that is not loaded");
    const Place& p = places_[object][s.st_shndx];
    if (s.st_value > p.bytes) o.wrong("a symbol lies outside of its section");
    return at(p) + s.st_value;
  }

  // The function that an object is loaded for.
  void* function(size_t object) {
    const Object& o = objects_[object];
    for (size_t i = 1; i < o.symbol_count(); ++i) {
      const Elf64_Sym s = o.symbol(i);
      if (ELF64_ST_TYPE(s.st_info) != STT_FUNC || s.st_shndx == SHN_UNDEF || o.name(s) != wanted_[object]) continue;
      std::byte* address = referred(object, s, R_X86_64_PC32);
      const Place& p = places_[object][s.st_shndx];
      if (p.part == Code && s.st_value < p.bytes) return address;
    }
    o.wrong("it has no function of that name");
  }

  void write_jumps() {
    for (const auto& [name, import] : imports_) {
      constexpr size_t kInstruction = 6;
      std::byte *jump = at(Code, import.jump), *address = at(ReadOnly, import.pointer);
      const auto distance = static_cast<int32_t>(address - (jump + kInstruction));
      std::memcpy(jump, "\xff\x25", 2);
      std::memcpy(jump + 2, &distance, sizeof distance);
      std::memcpy(address, &import.address, sizeof import.address);
    }
  }

  void protect() {
    const auto make = [&](Part part, int access) {
      if (sizes_[part] > 0 && mprotect(at(part, 0), sizes_[part], access) != 0)
        throw Failed{Diagnostic(errno == ENOMEM ? ErrorCode::OutOfMemory : ErrorCode::UnsupportedFeature,
                                "this system does not let the program make code: " + system_error_text())};
    };
    make(Code, PROT_READ | PROT_EXEC);
    make(ReadOnly, PROT_READ);
  }
  static std::string system_error_text() { return std::generic_category().message(errno); }

  struct Import {
    void* address;
    size_t jump, pointer; // offsets in Code, ReadOnly
  };
  std::span<const HostSymbol> given_;
  std::vector<std::string> wanted_; // by object
  std::vector<Object> objects_;
  std::vector<std::vector<Place>> places_; // by object and section
  std::unordered_map<std::string, Import> imports_;
  std::array<size_t, 3> sizes_{}, starts_{}; // of parts
  std::shared_ptr<HostCode> code_;
};

Result<std::shared_ptr<const HostCode>> HostCode::load(std::span<const HostObject> objects,
                                                       std::span<const HostSymbol> symbols) {
  try {
    return HostLinker(objects, symbols).run();
  } catch (Failed& f) {
    return std::move(f.error);
  }
}

void* HostCode::address(const std::string& symbol) const {
  auto it = functions_.find(symbol);
  return it == functions_.end() ? nullptr : it->second;
}

HostKernelFn HostCode::find(const std::string& symbol) const { return reinterpret_cast<HostKernelFn>(address(symbol)); }

HostCode::~HostCode() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

} // namespace tessera
