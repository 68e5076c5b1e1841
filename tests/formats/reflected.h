// FlatBuffers by reflection: every field that a binary schema (flatc --schema) declares, whatever
// the code under test knows about it.
#pragma once

#include <flatbuffers/flatbuffers.h>
#include <flatbuffers/reflection.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "formats/base/assert.h"
#include "formats/base/bytes.h"

namespace ckpt::test {

class Reflected {
 public:
  // Buffers whose root is this table of the schema file.
  Reflected(const std::string& schema_path, const std::string& table) {
    std::ifstream file(schema_path, std::ios::binary);
    schema_bytes_.assign(std::istreambuf_iterator<char>(file), {});
    const auto* bytes = reinterpret_cast<const uint8_t*>(schema_bytes_.data());
    flatbuffers::Verifier verifier(bytes, schema_bytes_.size());
    CKPT_ASSERT_MSG(reflection::VerifySchemaBuffer(verifier), "no binary schema there");
    schema_ = reflection::GetSchema(bytes);
    for (const reflection::Object* object : *schema_->objects()) {
      if (object->name()->string_view() == table) root_ = object;
    }
    CKPT_ASSERT_MSG(root_ != nullptr, "the schema has no such table");
  }

  // Numbers and strings of the buffer by their paths: "extents[1].step" -> "7".
  using Fields = std::map<std::string, std::string>;
  Fields fields(ByteView buffer) const {
    Fields fields;
    walk(buffer, [&](const std::string& path, const std::string&, const std::string& value) {
      fields[path] = value;
    });
    return fields;
  }

  // Numbers and strings that the table and everything in it declare: "ckpt.fb.Extent.step".
  std::set<std::string> declared() const {
    std::set<std::string> names;
    declare(*root_, names);
    return names;
  }
  // The declared ones that have a value other than zero somewhere in the buffer.
  std::set<std::string> used(ByteView buffer) const {
    std::set<std::string> names;
    walk(buffer, [&](const std::string&, const std::string& name, const std::string& value) {
      if (value != "0") names.insert(name);
    });
    return names;
  }

  // The buffer with a value of its own in every absent field, except in the fields with these
  // paths.
  std::vector<std::byte> filled(ByteView buffer, const std::set<std::string>& absent) {
    flatbuffers::FlatBufferBuilder builder;
    const Filler filler{*this, builder, absent};
    const auto root = filler.table(*root_, root_of(buffer), "");
    builder.Finish(flatbuffers::Offset<flatbuffers::Table>(root));
    const auto* bytes = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
    return {bytes, bytes + builder.GetSize()};
  }

 private:
  using Object = reflection::Object;
  using BaseType = reflection::BaseType;

  static const flatbuffers::Table* root_of(ByteView buffer) {
    return flatbuffers::GetRoot<flatbuffers::Table>(
        reinterpret_cast<const uint8_t*>(buffer.data()));
  }
  static const uint8_t* follow(const uint8_t* at) {
    return at + flatbuffers::ReadScalar<flatbuffers::uoffset_t>(at);
  }
  static uint64_t scalar(const uint8_t* at, size_t bytes) {
    uint64_t value = 0;
    std::memcpy(&value, at, bytes);
    return value;
  }
  static std::string join(const std::string& path, const reflection::Field& field) {
    return path.empty() ? field.name()->str() : path + "." + field.name()->str();
  }
  static std::string element(const std::string& path, size_t index) {
    return path + "[" + std::to_string(index) + "]";
  }
  const Object& object(int index) const {
    return *schema_->objects()->Get(static_cast<flatbuffers::uoffset_t>(index));
  }
  size_t inline_bytes(BaseType type, int index) const {
    return flatbuffers::GetTypeSizeInline(type, index, *schema_);
  }

  void declare(const Object& of, std::set<std::string>& names) const {
    for (const reflection::Field* field : *of.fields()) {
      const reflection::Type& type = *field->type();
      const bool list = type.base_type() == reflection::Vector;
      if ((list ? type.element() : type.base_type()) == reflection::Obj) {
        declare(object(type.index()), names);
      } else {
        names.insert(of.name()->str() + "." + field->name()->str());
      }
    }
  }

  template <typename Visit>
  void walk(ByteView buffer, const Visit& visit) const {
    walk_object(*root_, reinterpret_cast<const uint8_t*>(root_of(buffer)), "", visit);
  }
  template <typename Visit>
  void walk_object(const Object& of, const uint8_t* at, const std::string& path,
                   const Visit& visit) const {
    for (const reflection::Field* field : *of.fields()) {
      const uint8_t* value =
          of.is_struct()
              ? at + field->offset()
              : reinterpret_cast<const flatbuffers::Table*>(at)->GetAddressOf(field->offset());
      if (value == nullptr) continue;
      const std::string name = of.name()->str() + "." + field->name()->str();
      const reflection::Type& type = *field->type();
      if (type.base_type() != reflection::Vector) {
        walk_value(type.base_type(), type.index(), value, join(path, *field), name, visit);
        continue;
      }
      const uint8_t* list = follow(value);
      const auto count = flatbuffers::ReadScalar<flatbuffers::uoffset_t>(list);
      list += sizeof(flatbuffers::uoffset_t);
      for (size_t i = 0; i < count; ++i) {
        walk_value(type.element(), type.index(),
                   list + i * inline_bytes(type.element(), type.index()),
                   element(join(path, *field), i), name, visit);
      }
    }
  }
  template <typename Visit>
  void walk_value(BaseType type, int index, const uint8_t* at, const std::string& path,
                  const std::string& name, const Visit& visit) const {
    CKPT_ASSERT_MSG(type != reflection::Union && type != reflection::Array, "not known here");
    if (type == reflection::Obj) {
      const Object& inner = object(index);
      return walk_object(inner, inner.is_struct() ? at : follow(at), path, visit);
    }
    if (type == reflection::String) {
      return visit(path, name, reinterpret_cast<const flatbuffers::String*>(follow(at))->str());
    }
    visit(path, name, std::to_string(scalar(at, inline_bytes(type, index))));
  }

  // Builds a copy bottom up. A null `from` means that the value is absent in the original.
  struct Filler {
    Reflected& schema;
    flatbuffers::FlatBufferBuilder& builder;
    const std::set<std::string>& absent;

    flatbuffers::uoffset_t table(const Object& of, const flatbuffers::Table* from,
                                 const std::string& path) const {
      struct Inner {
        flatbuffers::voffset_t slot;
        flatbuffers::uoffset_t at;
      };
      std::vector<Inner> inner;
      std::vector<const reflection::Field*> in_place;
      for (const reflection::Field* field : *of.fields()) {
        const uint8_t* value = from == nullptr ? nullptr : from->GetAddressOf(field->offset());
        const std::string field_path = join(path, *field);
        if (value == nullptr && absent.contains(field_path)) continue;
        const reflection::Type& type = *field->type();
        if (type.base_type() == reflection::Vector) {
          inner.push_back({field->offset(), list(type, value, field_path)});
        } else if (is_in_place(type.base_type(), type.index())) {
          in_place.push_back(field);
        } else {
          inner.push_back(
              {field->offset(), outside(type.base_type(), type.index(), value, field_path)});
        }
      }
      const flatbuffers::uoffset_t start = builder.StartTable();
      for (const reflection::Field* field : in_place) add_in_place(*field, from);
      for (const Inner& one : inner) {
        builder.AddOffset(one.slot, flatbuffers::Offset<void>(one.at));
      }
      return builder.EndTable(start);
    }

    bool is_in_place(BaseType type, int index) const {
      return type == reflection::Obj ? schema.object(index).is_struct()
                                     : type != reflection::String;
    }
    // A table or string, which a table or list refers to by its offset.
    flatbuffers::uoffset_t outside(BaseType type, int index, const uint8_t* from,
                                   const std::string& path) const {
      if (type == reflection::Obj) {
        const uint8_t* at = from == nullptr ? nullptr : follow(from);
        return table(schema.object(index), reinterpret_cast<const flatbuffers::Table*>(at), path);
      }
      const std::string text =
          from == nullptr ? "text " + std::to_string(schema.next_++)
                          : reinterpret_cast<const flatbuffers::String*>(follow(from))->str();
      return builder.CreateString(text).o;
    }
    flatbuffers::uoffset_t list(const reflection::Type& type, const uint8_t* from,
                                const std::string& path) const {
      const uint8_t* old = from == nullptr ? nullptr : follow(from);
      const size_t count =
          old == nullptr ? 2 : flatbuffers::ReadScalar<flatbuffers::uoffset_t>(old);
      const size_t bytes = schema.inline_bytes(type.element(), type.index());
      const auto at = [&](size_t i) {
        return old == nullptr ? nullptr : old + sizeof(flatbuffers::uoffset_t) + i * bytes;
      };
      if (!is_in_place(type.element(), type.index())) {
        std::vector<flatbuffers::Offset<void>> offsets;
        for (size_t i = 0; i < count; ++i) {
          offsets.emplace_back(outside(type.element(), type.index(), at(i), element(path, i)));
        }
        return builder.CreateVector(offsets).o;
      }
      std::vector<uint8_t> values;
      for (size_t i = 0; i < count; ++i) {
        const std::vector<uint8_t> value = value_of(type.element(), type.index(), at(i));
        values.insert(values.end(), value.begin(), value.end());
      }
      const size_t alignment = alignment_of(type.element(), type.index());
      builder.StartVector(values.size() / alignment, alignment);
      builder.PushBytes(values.data(), values.size());
      return builder.EndVector(count);
    }

    size_t alignment_of(BaseType type, int index) const {
      return type == reflection::Obj ? static_cast<size_t>(schema.object(index).minalign())
                                     : schema.inline_bytes(type, index);
    }
    void add_in_place(const reflection::Field& field, const flatbuffers::Table* from) const {
      const reflection::Type& type = *field.type();
      const uint8_t* at = from == nullptr ? nullptr : from->GetAddressOf(field.offset());
      const std::vector<uint8_t> value = value_of(type.base_type(), type.index(), at);
      builder.StartStruct(alignment_of(type.base_type(), type.index()));
      builder.PushBytes(value.data(), value.size());
      builder.AddStructOffset(field.offset(), builder.EndStruct());
    }
    // Bytes of a number or struct.
    std::vector<uint8_t> value_of(BaseType type, int index, const uint8_t* from) const {
      const size_t bytes = schema.inline_bytes(type, index);
      if (from != nullptr) return {from, from + bytes};
      std::vector<uint8_t> value(bytes);
      if (type != reflection::Obj) {
        own_number(type, value.data(), bytes);
        return value;
      }
      for (const reflection::Field* field : *schema.object(index).fields()) {
        const auto part = value_of(field->type()->base_type(), field->type()->index(), nullptr);
        std::memcpy(value.data() + field->offset(), part.data(), part.size());
      }
      return value;
    }
    void own_number(BaseType type, uint8_t* to, size_t bytes) const {
      uint64_t value = schema.next_++;
      const auto real = static_cast<double>(value);
      if (type == reflection::Double) std::memcpy(&value, &real, sizeof(value));
      if (bytes == 1) value = type == reflection::Bool ? 1 : 1 + value % 100;
      std::memcpy(to, &value, bytes);
    }
  };

  std::string schema_bytes_;
  const reflection::Schema* schema_ = nullptr;
  const Object* root_ = nullptr;
  uint64_t next_ = 1000;
};

}  // namespace ckpt::test
