#include "formats/wire/unpacked.h"

#include <flatbuffers/minireflect.h>

#include <algorithm>

namespace ckpt::wire {
namespace {

using flatbuffers::ReadScalar;
using flatbuffers::TypeTable;
using flatbuffers::uoffset_t;

const uint8_t* follow(const uint8_t* field) { return field + ReadScalar<uoffset_t>(field); }

// Required alignment of a vector's element: its own size, or that of a struct's widest field.
size_t alignment_of(flatbuffers::ElementaryType element, const TypeTable* inner) {
  if (element != flatbuffers::ET_SEQUENCE || inner->st != flatbuffers::ST_STRUCT) {
    return flatbuffers::InlineSize(element, inner);
  }
  size_t widest = 1;
  for (size_t i = 0; i < inner->num_elems; ++i) {
    const flatbuffers::TypeCode code = inner->type_codes[i];
    const TypeTable* field =
        code.sequence_ref < 0 ? nullptr : inner->type_refs[code.sequence_ref]();
    const auto type = static_cast<flatbuffers::ElementaryType>(code.base_type);
    widest = std::max(widest, alignment_of(type, field));
  }
  return widest;
}

// Walks a verified buffer and charges the budget for each object by its size in the buffer.
class Walk {
 public:
  explicit Walk(uint64_t budget_bytes) : left_(budget_bytes) {}

  bool table(const uint8_t* at, const TypeTable& type) {
    if (!take(sizeof(flatbuffers::soffset_t))) return false;
    const auto* object = reinterpret_cast<const flatbuffers::Table*>(at);
    for (size_t i = 0; i < type.num_elems; ++i) {
      const uint8_t* field = object->GetAddressOf(slot(i));
      if (field != nullptr && !this->field(*object, field, type, i)) return false;
    }
    return true;
  }

 private:
  static flatbuffers::voffset_t slot(size_t index) {
    return flatbuffers::FieldIndexToOffset(static_cast<flatbuffers::voffset_t>(index));
  }
  static const TypeTable* reference(const TypeTable& type, size_t index) {
    const int ref = type.type_codes[index].sequence_ref;
    return ref < 0 ? nullptr : type.type_refs[ref]();
  }

  bool take(uint64_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

  bool string(const uint8_t* at) { return take(sizeof(uoffset_t) + ReadScalar<uoffset_t>(at)); }

  bool field(const flatbuffers::Table& object, const uint8_t* field, const TypeTable& type,
             size_t index) {
    const flatbuffers::TypeCode code = type.type_codes[index];
    const TypeTable* inner = reference(type, index);
    if (code.is_repeating) {
      return vector(follow(field), static_cast<flatbuffers::ElementaryType>(code.base_type), inner);
    }
    if (code.base_type == flatbuffers::ET_STRING) return string(follow(field));
    if (code.base_type != flatbuffers::ET_SEQUENCE) return true;  // a scalar lies in its table
    if (inner->st == flatbuffers::ST_TABLE) return table(follow(field), *inner);
    if (inner->st == flatbuffers::ST_UNION) {
      // The tag of a union is the field before it. Tags from a later schema are skipped here; the
      // caller refuses them.
      const auto tag = object.GetField<uint8_t>(slot(index - 1), 0);
      const TypeTable* member =
          tag > 0 && tag < inner->num_elems ? reference(*inner, tag) : nullptr;
      return member == nullptr || table(follow(field), *member);
    }
    return true;  // a struct lies in its table
  }

  bool vector(const uint8_t* at, flatbuffers::ElementaryType element, const TypeTable* inner) {
    const uint64_t count = ReadScalar<uoffset_t>(at);
    const uint64_t element_bytes = flatbuffers::InlineSize(element, inner);
    if (!take(sizeof(uoffset_t) + count * element_bytes)) return false;
    const uint8_t* first = at + sizeof(uoffset_t);
    if (count > 0 && reinterpret_cast<uintptr_t>(first) % alignment_of(element, inner) != 0) {
      return false;
    }
    const bool of_tables =
        element == flatbuffers::ET_SEQUENCE && inner->st == flatbuffers::ST_TABLE;
    if (!of_tables && element != flatbuffers::ET_STRING) return true;
    for (uint64_t i = 0; i < count; ++i) {
      const uint8_t* item = follow(first + i * element_bytes);
      if (!(of_tables ? table(item, *inner) : string(item))) return false;
    }
    return true;
  }

  uint64_t left_;
};

}  // namespace

flatbuffers::Verifier::Options verifier_options() {
  flatbuffers::Verifier::Options options;
  options.max_depth = 16;
  options.max_tables = kTablesMax;
  return options;
}

bool unpacks_safely(ByteView buffer, const TypeTable& type) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(buffer.data());
  return Walk(buffer.size()).table(follow(bytes), type);
}

}  // namespace ckpt::wire
