"""`p4.tmp.p4config_pb2`: the message that libraries for bmv2 wrap a program in. PI's Python package has it, which PyPI has not.

`scripts/setup tutorials` puts it where the libraries look.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, reflection

Field = descriptor_pb2.FieldDescriptorProto

_file = descriptor_pb2.FileDescriptorProto(name="p4/tmp/p4config.proto", package="p4.tmp", syntax="proto3")
_config = _file.message_type.add(name="P4DeviceConfig")
_extras = _config.nested_type.add(name="Extras")
_entry = _extras.nested_type.add(name="KvEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
for _name, _number in [("key", 1), ("value", 2)]:
    _entry.field.add(name=_name, number=_number, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
_extras.field.add(
    name="kv", number=1, type=Field.TYPE_MESSAGE, label=Field.LABEL_REPEATED, type_name=".p4.tmp.P4DeviceConfig.Extras.KvEntry"
)
_config.field.add(name="reassign", number=1, type=Field.TYPE_BOOL, label=Field.LABEL_OPTIONAL)
_config.field.add(
    name="extras", number=2, type=Field.TYPE_MESSAGE, label=Field.LABEL_OPTIONAL, type_name=".p4.tmp.P4DeviceConfig.Extras"
)
_config.field.add(name="device_data", number=3, type=Field.TYPE_BYTES, label=Field.LABEL_OPTIONAL)

_pool = descriptor_pool.Default()
DESCRIPTOR = _pool.AddSerializedFile(_file.SerializeToString()) or _pool.FindFileByName(_file.name)
P4DeviceConfig = reflection.MakeClass(DESCRIPTOR.message_types_by_name["P4DeviceConfig"])
