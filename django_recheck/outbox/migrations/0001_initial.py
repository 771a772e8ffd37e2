from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Event",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("receiver", models.TextField()),
                ("item", models.TextField()),
                ("digest", models.BigIntegerField(db_index=True)),
                ("count", models.PositiveBigIntegerField()),
                ("events", models.BinaryField()),
                ("created", models.DateTimeField()),
                ("due", models.DateTimeField(db_index=True)),
            ],
            options={
                "verbose_name": "event that no pass has covered yet",
                "verbose_name_plural": "events that no pass has covered yet",
                "default_permissions": (),
            },
        ),
    ]
